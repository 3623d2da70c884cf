#include "compiler/passes/loss/loss_graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/onnx_loss.h"
#include "runtime/base/philox.h"
#include "runtime/checkpoint/plan_identity.h"
#include "runtime/session/session.h"

namespace gradloom {
namespace {

constexpr char kHead[] = "<ir_version: 10, opset_import: [\"\" : 17]>\n";

const std::string kModel = R"(
g (float[N, 3] x) => (float[N, 3] z, float[N, 2] side)
  <float[3, 3] w = {0.5, -1, 2, 0.25, 1, -0.5, 1.5, 0.75, -2}, float[3] b = {0.1, 0, -0.1}, float[3, 2] v = {1, -1, 0.5, 2, -0.25, 0.125}>
{
  h = Gemm (x, w, b)
  z = Tanh (h)
  side = MatMul (z, v)
}
)";

LossTerm GraphTerm(const std::string& graph, const std::string& name = "loss.onnx") {
  LossTerm term{.type = "graph"};
  term.graph = std::make_shared<const OnnxLoss>(Model::FromText(kHead + graph, name));
  return term;
}

CompileOptions OptionsOf(std::vector<LossTerm> losses) {
  CompileOptions options;
  options.recipe.losses = std::move(losses);
  options.recipe.optimizer.type = "adam";
  options.recipe.schedule.lr = 0.05;
  options.recipe.fetch_gradients = true;
  options.entries = {{EntryKind::kStep, 4}, {EntryKind::kStep, 3}, {EntryKind::kEval, 4}};
  return options;
}

std::shared_ptr<const Plan> PlanOf(std::vector<LossTerm> losses) {
  return std::make_shared<const Plan>(Compile(Model::FromText(kHead + kModel), OptionsOf(std::move(losses))));
}

Tensor Random(const Shape& shape, uint64_t seed) {
  Tensor tensor(DType::kFloat32, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const PhiloxBlock block = Philox({static_cast<uint32_t>(i), 0, 0, 0}, NodeKey(seed, 0, 0));
    tensor.as<float>()[static_cast<size_t>(i)] = static_cast<float>(block[0]) * 0x1p-31f - 1;
  }
  return tensor;
}

struct Batch {
  Tensor x, z, side, labels;
  explicit Batch(int64_t rows)
      : x(Random({rows, 3}, 1)), z(Random({rows, 3}, 2)), side(Random({rows, 2}, 3)), labels(DType::kInt64, {rows}) {
    for (int64_t i = 0; i < rows; ++i) labels.as<int64_t>()[static_cast<size_t>(i)] = (i * 2 + 1) % 3;
  }
  Feeds feeds() const { return {{"x", x.view()}, {"tz", z.view()}, {"ts", side.view()}, {"label", labels.view()}}; }
};

struct Run {
  std::vector<double> losses;
  std::map<std::string, Tensor> gradients, parameters;
};

// A full batch, a partial one, and a full one again.
Run Train(std::vector<LossTerm> losses) {
  Session session(PlanOf(std::move(losses)));
  Run run;
  for (const int64_t rows : {4, 3, 4}) {
    const Batch batch(rows);
    run.losses.push_back(session.Step(batch.feeds()).loss);
    if (run.losses.size() > 1) continue;
    for (const char* name : {"w", "b", "v"}) {
      if (session.HasFetch(std::string("grad/") + name))
        run.gradients.emplace(name, Tensor::Copy(session.Fetched(std::string("grad/") + name)));
    }
  }
  for (const StateTensor& state : session.plan().state) run.parameters.emplace(state.name, session.Get(state.name));
  return run;
}

void ExpectNear(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      EXPECT_NEAR(ElementAsDouble(tensor.view(), i), ElementAsDouble(b.at(name).view(), i), 2e-6) << name << "[" << i << "]";
    }
  }
}

void ExpectSameTraining(std::vector<LossTerm> a, std::vector<LossTerm> b) {
  const Run left = Train(std::move(a)), right = Train(std::move(b));
  for (size_t i = 0; i < left.losses.size(); ++i) EXPECT_NEAR(left.losses[i], right.losses[i], 1e-6) << "step " << i;
  EXPECT_NE(left.losses[0], left.losses[2]);
  EXPECT_FALSE(left.gradients.empty());
  ExpectNear(left.gradients, right.gradients);
  ExpectNear(left.parameters, right.parameters);
}

const std::string kSquares = R"(
l (float[N, 3] z, float[N, 3] tz) => (float loss)
{
  d = Sub (z, tz)
  s = Mul (d, d)
  loss = ReduceMean <keepdims = 0> (s)
}
)";

TEST(LossGraph, MeanOfSquaresMatchesTheBuiltInLoss) {
  ExpectSameTraining({{.type = "mse", .output = "z", .target = "tz"}}, {GraphTerm(kSquares)});
}

TEST(LossGraph, CrossEntropyAsOperatorAndWrittenOut) {
  const LossTerm built_in{.type = "cross_entropy", .output = "z", .target = "label"};
  ExpectSameTraining({built_in}, {GraphTerm(R"(
l (float[N, 3] z, int64[N] label) => (float loss) { loss = SoftmaxCrossEntropyLoss (z, label) }
)")});
  ExpectSameTraining({built_in}, {GraphTerm(R"(
l (float[N, 3] z, int64[N] label) => (float loss) <int64[1] one = {1}>
{
  p = LogSoftmax <axis = 1> (z)
  column = Unsqueeze (label, one)
  picked = GatherElements <axis = 1> (p, column)
  mean = ReduceMean <keepdims = 0> (picked)
  loss = Neg (mean)
}
)")});
}

// A batch size that the loss's file declares as a number is the model's batch size. A loss of shape [1] is a scalar.
TEST(LossGraph, DeclaredBatchesAndShapeOne) {
  ExpectSameTraining({{.type = "mse", .output = "z", .target = "tz"}}, {GraphTerm(R"(
l (float[7, 3] z, float[7, 3] tz) => (float[1, 1] loss)
{
  d = Sub (z, tz)
  s = Mul (d, d)
  loss = ReduceMean <keepdims = 1> (s)
}
)")});
}

TEST(LossGraph, WeightedSumWithBuiltInLossesSharesTargets) {
  LossTerm squares = GraphTerm(kSquares);
  squares.weight = 0.25;
  ExpectSameTraining({{.type = "mse", .output = "z", .target = "tz", .weight = 1.25}, {.type = "l1", .output = "side", .target = "ts"}},
                     {{.type = "mse", .output = "z", .target = "tz"}, squares, {.type = "l1", .output = "side", .target = "ts"}});
}

TEST(LossGraph, BindsInputsToOtherNames) {
  LossTerm term = GraphTerm(R"(
l (float[N, 3] prediction, float[N, 3] truth) => (float loss)
{
  d = Sub (prediction, truth)
  s = Mul (d, d)
  loss = ReduceMean <keepdims = 0> (s)
}
)");
  term.bindings = {{"prediction", "z"}, {"truth", "tz"}};
  ExpectSameTraining({{.type = "mse", .output = "z", .target = "tz"}}, {term});
}

// sqrt(d^2 + eps^2) of two outputs and two targets, with the model's input as the weight of a penalty.
const std::string kCharbonnier = R"(
l (float[N, 3] z, float[N, 2] side, float[N, 3] tz, float[N, 2] ts, float[N, 3] x) => (float loss)
  <float eps2 = {0.01}, float half = {0.5}>
{
  dz = Sub (z, tz)
  qz = Mul (dz, dz)
  ez = Add (qz, eps2)
  cz = Sqrt (ez)
  ds = Sub (side, ts)
  qs = Mul (ds, ds)
  es = Add (qs, eps2)
  cs = Sqrt (es)
  xx = Mul (x, z)
  mz = ReduceMean <keepdims = 0> (cz)
  ms = ReduceMean <keepdims = 0> (cs)
  mx = ReduceMean <keepdims = 0> (xx)
  scaled = Mul (ms, half)
  sum = Add (mz, scaled)
  loss = Add (sum, mx)
}
)";

TEST(LossGraph, TwoOutputsAndTwoTargetsAgainstFiniteDifferences) {
  Session session(PlanOf({GraphTerm(kCharbonnier)}));
  const Batch batch(4);
  std::map<std::string, Tensor> start;
  for (const char* name : {"w", "b", "v"}) start.emplace(name, session.Get(name));
  session.Step(batch.feeds());
  std::map<std::string, Tensor> gradients;
  for (const char* name : {"w", "b", "v"}) gradients.emplace(name, Tensor::Copy(session.Fetched(std::string("grad/") + name)));
  for (const auto& [name, tensor] : start) session.Set(name, tensor.view());
  for (const auto& [name, tensor] : start) {
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const auto loss_at = [&](float offset) {
        Tensor moved = tensor.Clone();
        moved.as<float>()[static_cast<size_t>(i)] += offset;
        session.Set(name, moved.view());
        return ElementAsDouble(session.Evaluate(batch.feeds()).at("loss").view(), 0);
      };
      EXPECT_NEAR((loss_at(0.01f) - loss_at(-0.01f)) / 0.02, ElementAsDouble(gradients.at(name).view(), i), 1e-3)
          << name << "[" << i << "]";
    }
    session.Set(name, tensor.view());
  }
  for (const StateTensor& state : session.plan().state) EXPECT_EQ(state.name.find("eps2"), std::string::npos) << "a constant is trained";
}

// A loss draws new random numbers for each batch, and the same ones for the same seed.
TEST(LossGraph, RandomNumbersFollowTheSeedAndTheBatch) {
  const std::string noise = R"(
l (float[N, 3] z) => (float loss)
{
  r = RandomUniformLike (z)
  s = Mul (z, r)
  loss = ReduceMean <keepdims = 0> (s)
}
)";
  const Batch batch(4);
  std::vector<double> losses;
  for (int run = 0; run < 2; ++run) {
    Session session(PlanOf({GraphTerm(noise)}), {.seed = 5});
    session.set_learning_rate(0);
    for (int step = 0; step < 2; ++step) losses.push_back(session.Step(batch.feeds()).loss);
  }
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
  EXPECT_EQ(losses[1], losses[3]);
}

TEST(LossGraph, DistinguishesPlansOfOtherLosses) {
  const PlanIdentity a = IdentityOf(*PlanOf({GraphTerm(kSquares)})), same = IdentityOf(*PlanOf({GraphTerm(kSquares)}));
  const PlanIdentity other = IdentityOf(*PlanOf({GraphTerm(kSquares + " ")}));
  EXPECT_TRUE(DifferencesOf(a, same).empty());
  const std::vector<std::string> differences = DifferencesOf(a, other);
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_TRUE(differences[0].starts_with("loss: loss.onnx ")) << differences[0];
}

struct Refusal {
  const char* what;
  std::string graph;
  std::map<std::string, std::string> bindings;
  ErrorCode code;
  std::string message, help;
};

const Refusal kRefusals[] = {
    {"an output is nearly there",
     "l (float[N, 2] sidee, float[N, 2] ts) => (float loss) { d = Sub (sidee, ts) loss = ReduceMean <keepdims = 0> (d) }",
     {},
     ErrorCode::kConfig,
     "the model has no output 'sidee'",
     "did you mean 'side'?"},
    {"no output is read",
     "l (float[N, 2] p, float[N, 2] q) => (float loss) { d = Sub (p, q) loss = ReduceMean <keepdims = 0> (d) }",
     {},
     ErrorCode::kConfig,
     "reads no output of the model: its inputs are p, q",
     "the model's outputs are: z, side"},
    {"a binding of no input",
     kSquares,
     {{"tx", "y"}},
     ErrorCode::kConfig,
     "the loss has no input 'tx'",
     "did you mean 'tz'?   its inputs are: z, tz"},
    {"no scalar",
     "l (float[N, 3] z, float[N, 3] tz) => (float[N] loss) { d = Sub (z, tz) loss = ReduceMean <axes = [1], keepdims = 0> (d) }",
     {},
     ErrorCode::kShape,
     "a loss must be a scalar, but the output 'loss' is [4]",
     "ReduceMean"},
    {"two outputs",
     "l (float[N, 3] z) => (float a, float b) { a = ReduceMean <keepdims = 0> (z) b = ReduceMax <keepdims = 0> (z) }",
     {},
     ErrorCode::kGraph,
     "this graph has 2: a, b",
     "keep only the scalar loss"},
    {"an integer",
     "l (float[N, 3] z) => (int64 loss) { a = ReduceMean <keepdims = 0> (z) loss = Cast <to = 7> (a) }",
     {},
     ErrorCode::kType,
     "the output 'loss' is int64[], not floating-point",
     ""},
    {"another rank",
     "l (float[N] z, float[N] tz) => (float loss) { d = Sub (z, tz) loss = ReduceMean <keepdims = 0> (d) }",
     {},
     ErrorCode::kShape,
     "the input is given with shape [4,3], but the file declares rank 1",
     ""},
    {"another extent",
     "l (float[N, 2] z) => (float loss) { loss = ReduceMean <keepdims = 0> (z) }",
     {},
     ErrorCode::kShape,
     "dimension 1 is 2 in the file",
     ""},
    {"another type",
     "l (double[N, 3] z) => (double loss) { loss = ReduceMean <keepdims = 0> (z) }",
     {},
     ErrorCode::kType,
     "the input 'z' is float64[4,3], but the model's 'z' is float32[4,3]",
     "declare the input"},
    {"an extent that nothing says",
     "l (float[N, 3] z, float[N, M] t) => (float loss) { a = ReduceMean <keepdims = 0> (z) b = ReduceMean <keepdims = 0> (t) loss = Mul "
     "(a, b) }",
     {},
     ErrorCode::kConfig,
     "dimension 1 ('M') of an input is symbolic",
     "--shape M=16"},
    {"an operator that there is none of",
     "l (float[N, 3] z) => (float loss) { [odd] a = Soften (z) loss = ReduceMean <keepdims = 0> (a) }",
     {},
     ErrorCode::kUnsupported,
     "unknown operator 'Soften' (1 node)",
     ""},
    {"a target wanted in another way",
     "l (float[N, 3] z, float[N, 2] x) => (float loss) { a = ReduceMean <keepdims = 0> (z) b = ReduceMean <keepdims = 0> (x) loss = Mul "
     "(a, b) }",
     {},
     ErrorCode::kShape,
     "dimension 1 is 2 in the file",
     ""},
};

TEST(LossGraph, RejectsMismatchesByName) {
  for (const Refusal& refusal : kRefusals) {
    SCOPED_TRACE(refusal.what);
    try {
      LossTerm term = GraphTerm(refusal.graph);
      term.bindings = refusal.bindings;
      PlanOf({term});
      ADD_FAILURE() << "it compiles";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), refusal.code) << error.Describe();
      EXPECT_NE(error.message().find(refusal.message), std::string::npos) << error.Describe();
      EXPECT_NE(error.help().find(refusal.help), std::string::npos) << error.Describe();
      EXPECT_NE(error.where().find("loss.onnx"), std::string::npos) << error.Describe();
    }
  }
}

}  // namespace
}  // namespace gradloom
