// Branches and loops that are decided during a step: forward values and gradients of the plan are compared with the model in the float64
// oracle, by finite differences. Runs on the CPU, and, built again with ON_CUDA, on emulated GPUs (tests/cuda/BUILD).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/oracle/interpreter.h"
#include "gtest/gtest.h"
#include "runtime/exec/executor.h"

namespace gradloom {
namespace {

#ifdef ON_CUDA
constexpr DeviceKind kDevice = DeviceKind::kCuda;
#else
constexpr DeviceKind kDevice = DeviceKind::kCpu;
#endif

Tensor Random(const Shape& shape, uint64_t seed, double scale = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (int64_t i = 0; i < shape.elements(); ++i) values.push_back(static_cast<float>(scale) * normal(random));
  return Tensor::From<float>(values, shape);
}

using Feeds = std::map<std::string, Tensor>;

struct Trained {
  double loss = 0;
  std::map<std::string, Tensor> gradients;  // by parameter
  int decisions = 0;                        // number of branches and loops in the plan
  std::map<std::string, Tensor> states;     // after the last step
};

CompileOptions Options(const ImportOptions& import, int streams) {
  CompileOptions options;
  options.import = import;
  options.recipe.mode = GraphMode::kGraph;
  options.recipe.losses = {LossTerm{.type = "output"}};
  options.recipe.fetch_gradients = true;
  options.recipe.device = kDevice;
  if (kDevice == DeviceKind::kCuda) options.recipe.isa = "sm_90";
  options.recipe.streams = streams;
  options.recipe.copy_inputs = streams > 1;
  options.entries.push_back({EntryKind::kStep, 0});
  return options;
}

// Computes the mean of the model's first output and its gradients with a plan.
Trained Train(const Model& model, const Feeds& feeds, const ImportOptions& import = {}, int streams = 1, int steps = 1,
              Precision precision = Precision::kFloat32) {
  CompileOptions options = Options(import, streams);
  options.recipe.precision = precision;
  const auto plan = std::make_shared<const Plan>(Compile(model, options));
  const std::unique_ptr<Executor> executor = Executor::Make(plan);
  if (streams > 1) executor->SetChaos(7);
  std::vector<TensorView> bound;
  for (const Feed& feed : plan->entries[0].feeds) bound.push_back(feeds.at(feed.name).view());
  for (int step = 0; step < steps; ++step) executor->Run(0, bound, {});
  Trained trained;
  for (size_t i = 0; i < plan->entries[0].fetches.size(); ++i) {
    const std::string& name = plan->entries[0].fetches[i].name;
    const TensorView view = executor->Fetched(0, static_cast<int>(i));
    if (name == "loss") trained.loss = ElementAsDouble(view, 0);
    if (name.starts_with("grad/")) trained.gradients.emplace(name.substr(5), Converted(view, DType::kFloat64));
  }
  for (const StateTensor& state : plan->state) trained.states.emplace(state.name, executor->state().Get(state));
  for (const Instruction& instruction : plan->programs[0].instructions) {
    trained.decisions += instruction.kind == InstructionKind::kIf || instruction.kind == InstructionKind::kLoop;
  }
  return trained;
}

// The same loss from the imported graph in float64, with one element of a parameter perturbed.
class Oracle {
 public:
  Oracle(const Model& model, const Feeds& feeds, const ImportOptions& import = {}) : graph_(InDouble(*Import(model, import).graph)) {
    for (ValueId id : graph_->inputs) {
      const Tensor& fed = feeds.at(graph_->value(id).name);
      feeds_.emplace(id, IsFloating(fed.dtype()) ? Converted(fed.view(), DType::kFloat64) : fed);
    }
  }

  double Loss() const {
    const Tensor output = Interpret(*graph_, feeds_, std::vector<ValueId>{graph_->outputs[0]})[0];
    double sum = 0;
    for (int64_t i = 0; i < output.elements(); ++i) sum += ElementAsDouble(output.view(), i);
    return sum / static_cast<double>(output.elements());
  }

  double Slope(const std::string& parameter, int64_t element) {
    constexpr double kStep = 1e-5;
    const ValueId id = graph_->Find(parameter);
    const Tensor kept = *graph_->data(id);
    double losses[2];
    for (int side : {0, 1}) {
      std::vector<double> values;
      for (int64_t i = 0; i < kept.elements(); ++i) values.push_back(ElementAsDouble(kept.view(), i));
      values[static_cast<size_t>(element)] += side == 0 ? -kStep : kStep;
      graph_->set_data(id, Tensor::From<double>(values, kept.shape()));
      losses[side] = Loss();
    }
    graph_->set_data(id, kept);
    return (losses[1] - losses[0]) / (2 * kStep);
  }

 private:
  std::unique_ptr<Graph> graph_;
  std::map<ValueId, Tensor> feeds_;
};

void ExpectGradients(const Model& model, const Feeds& feeds, const std::vector<std::string>& parameters, int decisions,
                     const ImportOptions& import = {}) {
  const Trained trained = Train(model, feeds, import);
  EXPECT_EQ(trained.decisions, decisions);
  Oracle oracle(model, feeds, import);
  EXPECT_NEAR(trained.loss, oracle.Loss(), 1e-5 * (1 + std::abs(trained.loss)));
  for (const std::string& name : parameters) {
    ASSERT_TRUE(trained.gradients.contains(name)) << name;
    const Tensor& gradient = trained.gradients.at(name);
    for (int64_t i = 0; i < gradient.elements(); ++i) {
      const double slope = oracle.Slope(name, i);
      EXPECT_NEAR(ElementAsDouble(gradient.view(), i), slope, 1e-4 * (1 + std::abs(slope))) << name << " element " << i;
    }
  }
  // What one step leaves in memory must not be visible to the next step or to other streams.
  const Trained again = Train(model, feeds, import, 1, 3), streams = Train(model, feeds, import, 3, 2);
  EXPECT_EQ(trained.loss, again.loss);
  EXPECT_EQ(trained.loss, streams.loss);
  for (const std::string& name : parameters) {
    for (int64_t i = 0; i < trained.gradients.at(name).elements(); ++i) {
      EXPECT_EQ(ElementAsDouble(trained.gradients.at(name).view(), i), ElementAsDouble(again.gradients.at(name).view(), i)) << name;
      EXPECT_EQ(ElementAsDouble(trained.gradients.at(name).view(), i), ElementAsDouble(streams.gradients.at(name).view(), i)) << name;
    }
  }
}

constexpr char kBranches[] = R"(<ir_version: 10, opset_import: ["" : 20]>
branches (float[2,3] x) => (float[2,2] y)
<float[3,2] w1 = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6}, float[3,2] w2 = {1, -1, 0.5, 0.25, -0.75, 2}, float[2] b = {0.5, -0.5},
 float limit = {1.0}>
{
  m = ReduceMax <keepdims = 0> (x)
  big = Greater (m, limit)
  h = Mul (x, x)
  y = If (big) <
    then_branch = then_graph () => (float[2,2] t) { p = MatMul (h, w1) t = Tanh (p) },
    else_branch = else_graph () => (float[2,2] e) { q = MatMul (x, w2) e = Add (q, b) }
  >
}
)";

TEST(Regions, BranchDecidedByData) {
  const Model model = Model::FromText(kBranches);
  for (const float scale : {0.1f, 10.0f}) {
    SCOPED_TRACE(scale);
    const Feeds feeds = {{"x", Random({2, 3}, 5, scale)}};
    ExpectGradients(model, feeds, {"w1", "w2", "b"}, 2);
  }
  // The branch that is not taken contributes no gradient.
  const Trained taken = Train(model, {{"x", Random({2, 3}, 5, 10)}});
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(ElementAsDouble(taken.gradients.at("w2").view(), i), 0);
}

std::string Replaced(std::string text, const std::string& part, const std::string& by) {
  return text.replace(text.find(part), part.size(), by);
}

// Rows beyond the extent of the taken branch must not enter later results.
TEST(Regions, BranchesOfDifferentExtents) {
  std::string text = Replaced(kBranches, "t = Tanh (p)", "r = Tanh (p) t = Concat <axis = 0> (r, h2, r)");
  text = Replaced(text, "h = Mul (x, x)", "h = Mul (x, x) h2 = MatMul (x, w1)");
  text = Replaced(text, "y = If (big)", "rows = If (big)");
  text = Replaced(text, "e = Add (q, b) }\n  >",
                  "e = Add (q, b) }\n  >\n  scores = Softmax <axis = 0> (rows)\n  y = Mul (scores, rows)\n"
                  "  none = Constant <value_ints = [0]> ()\n  z = ReduceSum <keepdims = 0> (y, none)");
  text = Replaced(text, "(float[2,2] y)", "(float[2] z)");
  const Model model = Model::FromText(text);
  for (const float scale : {0.1f, 10.0f}) {
    SCOPED_TRACE(scale);
    ExpectGradients(model, {{"x", Random({2, 3}, 3, scale)}}, {"w1", "w2", "b"}, 2);
  }
}

// The branch that is not taken may contain an error, or produce NaN.
TEST(Regions, UntakenBranchHasNoEffect) {
  const Model model = Model::FromText(R"(<ir_version: 10, opset_import: ["" : 20]>
guarded (float[4] x, int64 i) => (float y) <float[4] w = {1, 2, 3, 4}, int64 four = {4}, float zero = {0}>
{
  inside = Less (i, four)
  y = If (inside) <
    then_branch = then_graph () => (float t) { v = Mul (x, w) t = Gather (v, i) },
    else_branch = else_graph () => (float e) { s = ReduceSum <keepdims = 0> (w) d = Div (s, zero) l = Log (d) e = Identity (l) }
  >
}
)");
  const Trained inside = Train(model, {{"x", Tensor::From<float>({1, 2, 3, 4}, {4})}, {"i", Tensor::Scalar<int64_t>(2)}});
  EXPECT_EQ(inside.loss, 9);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(ElementAsDouble(inside.gradients.at("w").view(), i), i == 2 ? 3 : 0);
  const Trained outside = Train(model, {{"x", Tensor::From<float>({1, 2, 3, 4}, {4})}, {"i", Tensor::Scalar<int64_t>(1000)}});
  EXPECT_TRUE(std::isinf(outside.loss));
}

constexpr char kUntil[] = R"(<ir_version: 10, opset_import: ["" : 20]>
until (float[2,3] x) => (float[2,2] y)
<float[3,2] w = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6}, float[2] grow = {1.5, 1.25}, float[2] b = {0.5, -0.5}, float limit = {3.0}, int64 most = {40}, bool yes = {1}>
{
  start = MatMul (x, w)
  y = Loop (most, yes, start) <
    body = body_graph (int64 i, bool going, float[2,2] s) => (bool again, float[2,2] next) {
      grown = Mul (s, grow)
      next = Add (grown, b)
      size = Abs (next)
      top = ReduceMax <keepdims = 0> (size)
      again = Less (top, limit)
    }
  >
}
)";

TEST(Regions, LoopEndedByData) {
  const Model model = Model::FromText(kUntil);
  for (const float scale : {0.01f, 1.0f, 20.0f}) {
    SCOPED_TRACE(scale);
    ExpectGradients(model, {{"x", Random({2, 3}, 9, scale)}}, {"w", "grow", "b"}, 2);
  }
}

// Each iteration reads the last rows of a memory, memory[-1], and replaces one.
TEST(Regions, LoopIndexesCarriedValuesFromTheEnd) {
  const Model model = Model::FromText(R"(<ir_version: 10, opset_import: ["" : 20]>
remembering (float[3,2] x, int64 n) => (float[3,2] y)
<float[2] w = {0.5, -1.5}, int64 last = {-1}, int64[1,1] before = {-2}, int64[1,1] end = {-1}, int64[1] zero = {0}, int64 most = {6}, bool yes = {1}>
{
  few = Min (n, most)
  y = Loop (few, yes, x) <
    body = body_graph (int64 i, bool going, float[3,2] memory) => (bool again, float[3,2] next) {
      again = Identity (going)
      newest = Gather <axis = 0> (memory, last)
      older = GatherND (memory, before)
      row = Unsqueeze (newest, zero)
      p = Mul (row, w)
      q = Mul (older, row)
      sum = Add (p, q)
      next = ScatterND (memory, end, sum)
    }
  >
}
)");
  for (const int64_t n : {1, 3}) ExpectGradients(model, {{"x", Random({3, 2}, 4)}, {"n", Tensor::Scalar<int64_t>(n)}}, {"w"}, 2);
}

TEST(Regions, LoopWithFedCount) {
  const Model model = Model::FromText(R"(<ir_version: 10, opset_import: ["" : 20]>
counted (float[2] x, int64 n) => (float[2] y) <float[2] w = {0.5, 2}, int64 most = {6}, bool yes = {1}>
{
  few = Min (n, most)
  y = Loop (few, yes, x) <
    body = body_graph (int64 i, bool going, float[2] s) => (bool again, float[2] next) { again = Identity (going) next = Mul (s, w) }
  >
}
)");
  CompileOptions options = Options({}, 1);
  options.recipe.losses = {LossTerm{.type = "output"}};
  // Without a gradient nothing is saved, and the number of iterations is unlimited.
  CompileOptions predict = options;
  predict.entries = {{EntryKind::kPredict, 0}};
  const auto plan = std::make_shared<const Plan>(Compile(model, predict));
  const std::unique_ptr<Executor> executor = Executor::Make(plan);
  for (int64_t n : {0, 1, 5, 9}) {
    const Tensor x = Tensor::From<float>({3, 1}, {2}), count = Tensor::Scalar<int64_t>(n);
    executor->Run(0, std::vector<TensorView>{x.view(), count.view()}, {});
    const double rounds = static_cast<double>(std::min<int64_t>(n, 6));
    EXPECT_EQ(ElementAsDouble(executor->Fetched(0, 0), 0), 3 * std::pow(0.5, rounds));
    EXPECT_EQ(ElementAsDouble(executor->Fetched(0, 0), 1), std::pow(2, rounds));
  }
  // With a gradient, the values at the start of each iteration are saved, up to this number of iterations.
  const auto feeds = [](int64_t n) { return Feeds{{"x", Tensor::From<float>({3, 1}, {2})}, {"n", Tensor::Scalar<int64_t>(n)}}; };
  ImportOptions three;
  three.loop_bound = 3;
  for (int64_t n : {0, 1, 3}) ExpectGradients(model, feeds(n), {"w"}, 2, three);
  try {
    Train(model, feeds(4), three);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kData);
    EXPECT_NE(error.message().find("limit of 3 iterations"), std::string::npos) << error.message();
  }
}

// The gradient of an iteration uses the same dropout mask as the iteration, and each iteration, also of the inner loop, draws a different
// one.
TEST(Regions, IterationsDropDifferentElements) {
  constexpr int64_t kElements = 64;
  std::string ones;
  for (int64_t i = 0; i < kElements; ++i) ones += i > 0 ? ", 1" : "1";
  const Model model = Model::FromText(R"(<ir_version: 10, opset_import: ["" : 20]>
dropping (float[64] x, int64 n) => (float[64] y)
<float[64] w = {)" + ones + R"(}, int64 most = {2}, int64 two = {2}, bool yes = {1}, float half = {0.5}, float zero = {0}>
{
  few = Min (n, most)
  start = Mul (x, zero)
  y = Loop (few, yes, start) <
    body = outer (int64 i, bool going, float[64] s) => (bool again, float[64] next) {
      again = Identity (going)
      inside = Less (i, n)
      d, mask = Dropout (x, half, yes)
      p = Mul (d, w)
      t = Add (s, p)
      next = Loop (few, yes, t) <
        body = inner (int64 j, bool on, float[64] u) => (bool more, float[64] v) {
          more = Identity (on)
          q = If (inside) <
            then_branch = then_graph () => (float[64] a) { e, m = Dropout (x, half, yes) a = Mul (e, w) },
            else_branch = else_graph () => (float[64] b) { b = Mul (x, w) }
          >
          v = Add (u, q)
        }
      >
    }
  >
}
)");
  std::vector<float> values(kElements, 1);
  const Feeds feeds{{"x", Tensor::From<float>(values, {kElements})}, {"n", Tensor::Scalar<int64_t>(2)}};
  const Trained trained = Train(model, feeds), streams = Train(model, feeds, {}, 3, 2);
  // The loss is linear in w, which is all ones.
  double sum = 0;
  std::map<int, int> drawn;  // how often an element was kept in the six draws
  for (int64_t i = 0; i < kElements; ++i) {
    const double gradient = ElementAsDouble(trained.gradients.at("w").view(), i);
    EXPECT_EQ(gradient, ElementAsDouble(streams.gradients.at("w").view(), i));
    sum += gradient;
    ++drawn[static_cast<int>(std::lround(gradient * kElements / 2))];
  }
  EXPECT_NEAR(trained.loss, sum, 1e-5);
  // The counts are binomial. If two of the draws were equal, fewer of them would be odd.
  int odd = 0;
  for (const auto& [count, times] : drawn) odd += count % 2 == 1 ? times : 0;
  EXPECT_GE(drawn.size(), 5u);
  EXPECT_GT(odd, 20);
  EXPECT_LT(odd, 44);
}

// A recurrent layer as a forward Scan and a reverse Scan, whose results are concatenated along another axis.
constexpr char kScan[] = R"(<ir_version: 10, opset_import: ["" : 20]>
scanned (float[5,2,3] x) => (float[2,5,4] y)
<float[3,4] w = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, -0.8, 0.9, 0.15, -0.25, 0.35},
 float[4,4] u = {0.3, 0.1, -0.2, 0.4, 0.2, -0.3, 0.1, 0.1, -0.1, 0.2, 0.3, -0.2, 0.5, -0.4, 0.2, 0.1}, float[2,4] h0 = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}>
{
  last, there = Scan (h0, x) <num_scan_inputs = 1, scan_output_axes = [1],
    body = step (float[2,4] h, float[2,3] row) => (float[2,4] next, float[2,4] out) {
      a = MatMul (row, w)
      r = MatMul (h, u)
      s = Add (a, r)
      next = Tanh (s)
      out = Identity (next)
    }
  >
  end, back = Scan (last, x) <num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1], scan_output_axes = [-2],
    body = step_back (float[2,4] g, float[2,3] line) => (float[2,4] g2, float[2,4] o2) {
      a2 = MatMul (line, w)
      r2 = Mul (g, a2)
      g2 = Sigmoid (r2)
      o2 = Add (g2, g)
    }
  >
  both = Mul (there, back)
  one = Constant <value_ints = [1]> ()
  end3 = Unsqueeze (end, one)
  y = Add (both, end3)
}
)";

TEST(Regions, ScanMatchesUnrolledScan) {
  const Model model = Model::FromText(kScan);
  const Feeds feeds = {{"x", Random({5, 2, 3}, 21)}};
  ImportOptions decided;
  decided.unrolled_nodes = 0;
  ExpectGradients(model, feeds, {"w", "u", "h0"}, 4, decided);
  const Trained written = Train(model, feeds), loops = Train(model, feeds, decided);
  EXPECT_EQ(written.decisions, 0);
  EXPECT_NEAR(written.loss, loops.loss, 1e-6);
  for (const auto& [name, gradient] : written.gradients) {
    for (int64_t i = 0; i < gradient.elements(); ++i)
      EXPECT_NEAR(ElementAsDouble(gradient.view(), i), ElementAsDouble(loops.gradients.at(name).view(), i), 1e-6) << name;
  }
}

// A loop that swaps its carried values, with a branch inside, over rows that are read by the iteration number.
constexpr char kNested[] = R"(<ir_version: 10, opset_import: ["" : 20]>
nested (float[4,3] x) => (float[3] y)
<float[3] w = {0.5, -0.5, 0.25}, float[3] v = {0.9, 1.1, -0.7}, float zero = {0}, int64 four = {4}, bool yes = {1}>
{
  a0 = Mul (w, v)
  b0 = Add (w, v)
  a, b, all = Loop (four, yes, a0, b0) <
    body = body_graph (int64 i, bool going, float[3] p, float[3] q) => (bool again, float[3] q1, float[3] p1, float[3] row) {
      again = Identity (going)
      r = Gather (x, i)
      s = ReduceSum <keepdims = 0> (r)
      positive = Greater (s, zero)
      p1 = If (positive) <
        then_branch = then_graph () => (float[3] t) { t0 = Mul (p, r) t = Add (t0, w) },
        else_branch = else_graph () => (float[3] e) { e0 = Sub (p, q) e = Mul (e0, v) }
      >
      q1 = Identity (q)
      row = Mul (p1, q)
    }
  >
  axis = Constant <value_ints = [0]> ()
  sum = ReduceSum <keepdims = 0> (all, axis)
  ab = Mul (a, b)
  y = Add (sum, ab)
}
)";

TEST(Regions, BranchesWithinLoops) {
  const Model model = Model::FromText(kNested);
  const Feeds feeds = {{"x", Random({4, 3}, 33)}};
  ImportOptions decided;
  decided.unrolled_nodes = 0;
  ExpectGradients(model, feeds, {"w", "v"}, 2, decided);
  // Unrolled, there is a branch in each iteration.
  ExpectGradients(model, feeds, {"w", "v"}, 8);
}

void ExpectRefused(const std::string& text, const std::string& part) {
  try {
    Compile(Model::FromText(text), Options({}, 1));
    ADD_FAILURE() << "accepted: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.message();
    EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  }
}

TEST(Regions, RejectsShapesThatDependOnADecision) {
  ExpectRefused(Replaced(kBranches, "t = Tanh (p)", "axis = Constant <value_ints = [0]> () t = Unsqueeze (p, axis)"),
                "in one branch and float32[2,2] in the other");
  ExpectRefused(Replaced(kUntil, "next = Add (grown, b)", "more = Add (grown, b) next = Concat <axis = 0> (more, more)"), "after it");
  ExpectRefused(Replaced(Replaced(kUntil, "y = Loop", "y, rows = Loop"), "next) {", "next, float[2,2] row) { row = Identity (s)"),
                "the number of rows of loop output 1");
}

constexpr char kNormalised[] = R"(<ir_version: 10, opset_import: ["" : 20]>
normalised (float[5,3] x) => (float[5,3] y)
<float[3,3] w = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, 0.2, -0.3}, float[3] scale = {0.7, 1.5, -0.6}, float[3] bias = {0.1, 0.2, -0.3},
 float[3] mean = {0.1, -0.2, 0.3}, float[3] var = {1.5, 0.5, 2}, int64 three = {3}, bool yes = {1}, float limit = {1.0}>
{
  m = ReduceMax <keepdims = 0> (x)
  big = Greater (m, limit)
  looped = Loop (three, yes, x) <
    body = body_graph (int64 i, bool going, float[5,3] h) => (bool again, float[5,3] next) {
      again = Identity (going)
      p = MatMul (h, w)
      n, m1, v1 = BatchNormalization <training_mode = 1, momentum = 0.7> (p, scale, bias, mean, var)
      next = Tanh (n)
    }
  >
  y = If (big) <
    then_branch = then_graph () => (float[5,3] t) { t, m2, v2 = BatchNormalization <training_mode = 1> (looped, bias, scale, mean, var) },
    else_branch = else_graph () => (float[5,3] e) { e = Mul (looped, looped) }
  >
}
)";

void ExpectNear(const std::map<std::string, Tensor>& got, const std::map<std::string, Tensor>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const double expected = ElementAsDouble(tensor.view(), i);
      EXPECT_NEAR(ElementAsDouble(got.at(name).view(), i), expected, tolerance * (1 + std::abs(expected))) << name << " element " << i;
    }
  }
}

// Each iteration, and the branch that is taken, updates the running statistics in turn.
TEST(Regions, BatchStatisticsInBodies) {
  ImportOptions decided;
  decided.unrolled_nodes = 0;
  for (const bool big : {false, true}) {
    SCOPED_TRACE(big);
    const Feeds feeds = {{"x", Random({5, 3}, 31, big ? 10 : 0.1)}};
    const Model model = Model::FromText(kNormalised);
    const Model known = Model::FromText(Replaced(Replaced(kNormalised, "big = Greater (m, limit)", ""), "float limit = {1.0}",
                                                 std::string("bool big = {") + (big ? "1}" : "0}")));
    for (const int streams : {1, 3}) {
      const Trained bodies = Train(model, feeds, decided, streams, 3), written = Train(known, feeds, {}, streams, 3);
      EXPECT_GE(bodies.decisions, 3);
      EXPECT_EQ(written.decisions, 0);
      EXPECT_NEAR(bodies.loss, written.loss, 1e-5);
      ExpectNear(bodies.gradients, written.gradients, 2e-5);
      ExpectNear(bodies.states, written.states, 1e-5);
      // The statistics change.
      EXPECT_GT(std::abs(ElementAsDouble(bodies.states.at("mean").view(), 0) - 0.1), 1e-3);
    }
  }
}

// Products are rounded in bodies just as in unrolled iterations. Carried values are float32 in bodies and 16-bit when unrolled.
TEST(Regions, BodiesIn16Bits) {
  const Feeds feeds = {{"x", Random({5, 2, 3}, 21)}};
  ImportOptions decided;
  decided.unrolled_nodes = 0;
  const Model model = Model::FromText(kScan);
  const Trained exact = Train(model, feeds, decided);
  for (const Precision precision : {Precision::kBfloat16, Precision::kFloat16}) {
    const Trained bodies = Train(model, feeds, decided, 1, 1, precision), written = Train(model, feeds, {}, 1, 1, precision);
    EXPECT_GT(bodies.decisions, 0);
    // A few roundings of numbers near one.
    const double unit = precision == Precision::kBfloat16 ? 0x1p-9 : 0x1p-12;
    EXPECT_NEAR(bodies.loss, written.loss, 8 * unit);
    EXPECT_NEAR(bodies.loss, exact.loss, 8 * unit);
    EXPECT_NE(bodies.loss, exact.loss);
    ExpectNear(bodies.gradients, written.gradients, 20 * unit);
  }
}

}  // namespace
}  // namespace gradloom
