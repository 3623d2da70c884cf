// Models that relate the samples of a batch, such as losses over all pairs: one device gathers the samples from where they are related on.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/base/error.h"
#include "runtime/plan/memory_report.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr char kTower[] =
    "float[4, 6] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3, 0.4, -0.9, 0.6, 1.2, -0.7, 0.5, -1.1, "
    "0.35}, float[6] b = {0.1, -0.2, 0.3, 0.05, -0.15, 0.25}";

Tensor Numbers(int64_t count) {
  Tensor tensor(DType::kInt64, Shape{count});
  for (int64_t i = 0; i < count; ++i) tensor.as<int64_t>()[static_cast<size_t>(i)] = i;
  return tensor;
}

struct Related {
  const char* name;
  std::string graph;  // with inputs that `make` makes
  std::vector<LossTerm> losses;
  std::function<Batch(std::mt19937&, int64_t)> make;
  std::string from;              // the name of the node from which samples are related
  std::set<std::string> on_one;  // parameters that only the gathering device has
};

Batch Pairs(std::mt19937& random, int64_t size) { return {{"x", Random(random, Shape{size, 4})}, {"y", Random(random, Shape{size, 4})}}; }
Batch PairsWithTargets(std::mt19937& random, int64_t size) {
  Batch batch = Pairs(random, size);
  batch.emplace("target", Numbers(size));
  return batch;
}
Batch PairsWithTable(std::mt19937& random, int64_t size) {
  Batch batch = Pairs(random, size);
  batch.emplace("target", Random(random, Shape{size, size}));
  return batch;
}
Batch Classified(std::mt19937& random, int64_t size) { return {{"x", Random(random, Shape{size, 4})}, {"c", Classes(random, size, 3)}}; }
Batch Survivals(std::mt19937& random, int64_t size) {
  Tensor time = Random(random, Shape{size}), event = Random(random, Shape{size});
  for (float& value : event.as<float>()) value = value > -0.5F ? 1 : 0;
  event.as<float>()[0] = 1;
  return {{"x", Random(random, Shape{size, 4})}, {"time", std::move(time)}, {"event", std::move(event)}};
}

// Two towers with features f and g of paired samples.
const std::string kPairedTowers = "g (float[N, 4] x, float[N, 4] y) => (float[N, N] z) <" + std::string(kTower) + R"(,
 float[4, 6] v = {0.2, 1, -0.5, 0.4, -0.3, 0.8, 1.2, -0.1, 0.7, 0.6, -0.9, 0.3, -0.4, 0.5, 1.1, -0.2, 0.9, -0.7, 0.3, -0.8, 0.1, 0.6, -0.5, 0.2},
 float scale = {0.3}, float half = {0.5}> {
  m1 = MatMul (x, w) m2 = Add (m1, b) f = Tanh (m2)
  n1 = MatMul (y, v) g = Tanh (n1) t = Transpose (g)
  e = Exp (scale)
  [similarity] s = MatMul (f, t)
  z = Mul (s, e)
)";

// Both directions, as CLIP: the labels are counted in the graph.
const std::string kBothDirections = R"(
  zt = Transpose (z)
  i0 = Constant <value_int = 0> () i1 = Constant <value_int = 1> ()
  sh = Shape (x) n = Gather (sh, i0) labels = Range (i0, n, i1)
  p = LogSoftmax <axis = 1> (z) q = LogSoftmax <axis = 1> (zt)
  a = NegativeLogLikelihoodLoss (p, labels) c = NegativeLogLikelihoodLoss (q, labels)
  sum = Add (a, c) loss = Mul (sum, half)
})";

std::string WithLoss(std::string graph, const std::string& body) {
  const std::string out = "float[N, N] z)";
  return graph.replace(graph.find(out), out.size(), "float loss)") + body;
}

// Two views of each sample pass through one network. The diagonal is masked, and positives are half the rows apart.
const std::string kViews = "g (float[N, 4] x, float[N, 4] y) => (float loss) <" + std::string(kTower) + R"(,
 float[6, 3] p = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3, 0.4, -0.9}, float big = {100}> {
  j = Concat <axis = 0> (x, y)
  r1 = MatMul (j, w) r2 = Tanh (r1) h0 = MatMul (r2, p)
  l = ReduceL2 <axes = [1], keepdims = 1> (h0) h = Div (h0, l) t = Transpose (h)
  [similarity] s = MatMul (h, t)
  eye = EyeLike <dtype = 1> (s) mask = Mul (eye, big) m = Sub (s, mask) ls = LogSoftmax <axis = 1> (m)
  i0 = Constant <value_int = 0> () i1 = Constant <value_int = 1> () two = Constant <value_int = 2> ()
  sh = Shape (j) n2 = Gather (sh, i0) n = Div (n2, two) range = Range (i0, n2, i1) moved = Add (range, n) labels = Mod (moved, n2)
  loss = NegativeLogLikelihoodLoss (ls, labels)
})";

// The risk set of each sample are those that lived as long.
const std::string kPartialLikelihood = "g (float[N, 4] x, float[N] time, float[N] event) => (float loss) <" + std::string(kTower) + R"(,
 float[6, 1] p = {1, -0.2, 0.5, 0.1, 0.3, -0.4}, int64[1] one = {1}> {
  m1 = MatMul (x, w) m2 = Add (m1, b) m3 = Tanh (m2) m4 = MatMul (m3, p) risk = Squeeze (m4, one)
  i0 = Constant <value_int = 0> () sh = Shape (time)
  [sort] values, order = TopK <axis = 0> (time, sh)
  r = Gather (risk, order) d = Gather (event, order) e = Exp (r) c = CumSum (e, i0) l = Log (c) t = Sub (r, l) u = Mul (t, d)
  s = ReduceSum <keepdims = 0> (u) k = ReduceSum <keepdims = 0> (d) q = Div (s, k) loss = Neg (q)
})";

const std::string kTriplets = "g (float[N, 4] x, int64[N] c) => (float loss) <" + std::string(kTower) + R"(,
 int64[1] one = {1}, int64[1] zero = {0}, float big = {100}, float margin = {3}, float nothing = {0}> {
  m1 = MatMul (x, w) m2 = Add (m1, b) m3 = Tanh (m2) r = Unsqueeze (m3, one) k = Unsqueeze (m3, zero)
  [differences] d0 = Sub (r, k)
  d = ReduceSumSquare <axes = [2], keepdims = 0> (d0)
  c0 = Unsqueeze (c, one) c1 = Unsqueeze (c, zero) same = Equal (c0, c1)
  near = Where (same, d, nothing) far = Where (same, big, d)
  positive = ReduceMax <axes = [1], keepdims = 0> (near) negative = ReduceMin <axes = [1], keepdims = 0> (far)
  gap = Sub (positive, negative) over = Add (gap, margin) hinge = Relu (over) loss = ReduceMean <keepdims = 0> (hinge)
})";

// A softmax over the batch, after which the model goes on: everything after it is on one device.
const std::string kSoftmaxOverSamples = "g (float[N, 4] x, int64[N] c) => (float[N, 3] z) <" + std::string(kTower) + R"(,
 float[6, 3] p = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3, 0.4, -0.9}, float rate = {0.25}, bool on = {1}> {
  m1 = MatMul (x, w) m2 = Dropout (m1, rate, on)
  [softmax] m3 = Softmax <axis = 0> (m2)
  m4 = Mul (m3, m2) m5 = Dropout (m4, rate, on) z = MatMul (m5, p)
})";

// Steps come first, and are merged with the samples behind them where samples are related.
const std::string kSequences = "g (float[3, batch, 4] x) => (float loss) <" + std::string(kTower) + R"(,
 int64[2] rows = {-1, 6}, int64[1] zero = {0}> {
  m1 = MatMul (x, w) m2 = Tanh (m1) h = Reshape (m2, rows) t = Transpose (h)
  [similarity] s = MatMul (h, t)
  p = Softmax <axis = 1> (s) q = Mul (p, s) loss = ReduceMean <keepdims = 0> (q)
})";

std::vector<Related> Models() {
  const std::vector<LossTerm> of_graph = {{.type = "output", .output = "loss", .target = ""}};
  const auto sequences = [](std::mt19937& random, int64_t size) { return Batch{{"x", Random(random, Shape{3, size, 4})}}; };
  return {
      {"contrastive logits",
       kPairedTowers + "}",
       {{.type = "cross_entropy", .output = "z", .target = "target"}},
       PairsWithTargets,
       "'similarity'",
       {"scale"}},
      {"contrastive loss in the graph", WithLoss(kPairedTowers, kBothDirections), of_graph, Pairs, "'similarity'", {"scale"}},
      {"a fed table of pairs",
       kPairedTowers + "}",
       {{.type = "mse", .output = "z", .target = "target"}},
       PairsWithTable,
       "'similarity'",
       {"scale"}},
      {"NT-Xent", kViews, of_graph, Pairs, "'similarity'", {}},
      {"Cox partial likelihood", kPartialLikelihood, of_graph, Survivals, "'sort'", {}},
      {"batch-hard triplets", kTriplets, of_graph, Classified, "'differences'", {}},
      {"a softmax over samples",
       kSoftmaxOverSamples,
       {{.type = "cross_entropy", .output = "z", .target = "c"}},
       Classified,
       "'softmax'",
       {"p"}},
      {"pairs of steps", kSequences, of_graph, sequences, "'similarity'", {}},
  };
}

TEST(RelatedSamples, AreGathered) {
  for (const Related& model : Models()) {
    SCOPED_TRACE(model.name);
    ExpectDivides(model.graph, model.losses, {9, 9, 5, 2}, model.make);
  }
}

TEST(RelatedSamples, AreGatheredFromWhereTheyAreRelated) {
  for (const Related& model : Models()) {
    SCOPED_TRACE(model.name);
    CompileReport report;
    const Plan plan = Compile(ModelOf(model.graph), OptionsFor(model.losses, 3, {9}), &report);
    ASSERT_TRUE(report.tail.has_value());
    EXPECT_TRUE(report.tail->from.ends_with(model.from)) << report.tail->from;
    EXPECT_GT(report.tail->nodes, 0);
    EXPECT_LT(report.tail->nodes, report.tail->all_nodes);
    EXPECT_LT(report.tail->flops_share, 1);
    for (const StateTensor& state : plan.state) {
      if (state.kind != StateKind::kParameter) continue;
      EXPECT_TRUE(state.in_place(plan.PlaceOf(0))) << state.name;
      EXPECT_EQ(state.in_place(plan.PlaceOf(1)), !model.on_one.contains(state.name)) << state.name;
    }
    // The refusal names the same node.
    CompileOptions refused = OptionsFor(model.losses, 3, {9});
    refused.recipe.gather_related = false;
    try {
      Compile(ModelOf(model.graph), refused);
      ADD_FAILURE() << "it is divided";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_NE(error.where().find(report.tail->from), std::string::npos) << error.Describe();
      EXPECT_NE(error.message().find(report.tail->why), std::string::npos) << error.Describe();
    }
  }
}

TEST(RelatedSamples, ClippedAndAccumulated) {
  for (const Related& model : Models()) {
    SCOPED_TRACE(model.name);
    ExpectDivides(model.graph, model.losses, {9, 9, 5, 5}, model.make, [](CompileOptions& options) {
      options.recipe.optimizer.clip_norm = 0.2;
      options.recipe.accumulate = 2;
      options.recipe.fetch_gradients = false;
    });
  }
}

// A term that relates no samples stays divided.
TEST(RelatedSamples, OtherTermsOfTheLossAreDivided) {
  const std::string graph = "g (float[N, 4] x, float[N, 4] y) => (float[N, N] z, float[N, 3] k) <" + std::string(kTower) +
                            ", float[6, 3] p = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3, 0.4, -0.9}> { "
                            "m1 = MatMul (x, w) f = Tanh (m1) n1 = MatMul (y, w) g = Tanh (n1) t = Transpose (g) z = MatMul (f, t) k = "
                            "MatMul (f, p) }";
  const std::vector<LossTerm> losses = {{.type = "cross_entropy", .output = "k", .target = "c"},
                                        {.type = "cross_entropy", .output = "z", .target = "target", .weight = 0.5}};
  const auto make = [](std::mt19937& random, int64_t size) {
    Batch batch = PairsWithTargets(random, size);
    batch.emplace("c", Classes(random, size, 3));
    return batch;
  };
  ExpectDivides(graph, losses, {9, 9, 5, 2}, make);
  const Plan plan = Compile(ModelOf(graph), OptionsFor(losses, 2, {8}));
  EXPECT_EQ(Count(plan, "CrossEntropyTraining"), 3);  // one term in both programs, the other in one
  for (const StateTensor& state : plan.state) EXPECT_TRUE(state.in_place(plan.PlaceOf(1))) << state.name;
}

// Neighbouring samples form pairs, which the devices' shares may separate.
TEST(RelatedSamples, NeighboursArePairs) {
  const std::string graph =
      "g (float[N, 4] x) => (float[M, 6] z) <" + std::string(kTower) +
      ", int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] end = {9223372036854775807}> { m1 = "
      "MatMul (x, w) h = Tanh (m1) a = Slice (h, zero, end, zero, two) c = Slice (h, one, end, zero, two) z = Mul (a, c) }";
  ExpectDivides(graph, {{.type = "output", .output = "z", .target = ""}}, {10, 10, 6, 2}, [](std::mt19937& random, int64_t size) {
    return Batch{{"x", Random(random, Shape{size, 4})}};
  });
}

// Files for one batch size hold tables of its pairs as constants: here the diagonal, and the place of each sample's other view, which is
// half the rows away. One as a node's constant, one as an initializer that might be a weight, and numbers that differ between samples.
TEST(RelatedSamples, TablesOfAFileForOneBatchSizeAreGathered) {
  std::string diagonal, pairs, rows;
  for (int i = 0; i < 12; ++i) {
    for (int j = 0; j < 12; ++j) {
      diagonal += i + j == 0 ? "" : ", ";
      diagonal += i == j ? "100" : "0";
    }
    pairs += (i == 0 ? "" : ", ") + std::to_string((i + 6) % 12);
    rows += (i == 0 ? "" : ", ") + std::to_string(0.25 * i * i);
  }
  const std::string views = "g (float[6, 4] x, float[6, 4] y) => (float loss) <" + std::string(kTower) + ", float[12, 12] mask = {" +
                            diagonal + "}, int64[12] labels = {" + pairs + R"(}> {
  j = Concat <axis = 0> (x, y)
  r1 = MatMul (j, w) h0 = Tanh (r1) l = ReduceL2 <axes = [1], keepdims = 1> (h0) h = Div (h0, l) t = Transpose (h)
  [similarity] s = MatMul (h, t)
  m = Sub (s, mask) ls = LogSoftmax <axis = 1> (m) loss = NegativeLogLikelihoodLoss (ls, labels)
})";
  const std::string shifted = "g (float[12, 4] x) => (float[12, 6] z) <" + std::string(kTower) + ", float[12, 1] rows = {" + rows + R"(}> {
  m1 = MatMul (x, w) m2 = Tanh (m1)
  [shift] z = Add (m2, rows)
})";
  const auto one = [](std::mt19937& random, int64_t size) { return Batch{{"x", Random(random, Shape{size, 4})}}; };
  const auto without = [](const char* table) { return [=](CompileOptions& options) { options.recipe.freeze = {table}; }; };
  ExpectDivides(views, {{.type = "output", .output = "loss", .target = ""}}, {6, 6, 6}, Pairs, without("mask"));
  ExpectDivides(shifted, {{.type = "output", .output = "z", .target = ""}}, {12, 12}, one, without("rows"));
  // At other batch sizes the tables are not known, on one device either.
  for (int devices : {1, 2}) {
    CompileOptions options = OptionsFor({{.type = "output", .output = "loss", .target = ""}}, devices, {4});
    without("mask")(options);
    try {
      Compile(ModelOf(views), options);
      ADD_FAILURE() << "it is accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kShape) << error.Describe();
      EXPECT_NE(error.message().find("exported for a batch size of 6"), std::string::npos) << error.Describe();
    }
  }
}

// A mean of integers is rounded once: of the samples themselves, and of what is summed over them.
TEST(RelatedSamples, IntegerMeansAreRoundedOnce) {
  for (const char* mean : {"m = ReduceMean <axes = [0], keepdims = 1> (i)", "s = ReduceSum (i, zero) m = ReduceMean <axes = [1]> (s)"}) {
    SCOPED_TRACE(mean);
    const std::string graph = "g (float[N, 4] x) => (float[N, 6] z) <" + std::string(kTower) +
                              ", float ten = {10}, int64[1] zero = {0}> { p = Mul (x, ten) i = Cast <to = 7> (p) " + mean +
                              " c = Cast <to = 1> (m) y = Add (x, c) h = MatMul (y, w) z = Tanh (h) }";
    ExpectDivides(graph, {{.type = "output", .output = "z", .target = ""}}, {9, 9, 5, 2}, [](std::mt19937& random, int64_t size) {
      return Batch{{"x", Random(random, Shape{size, 4})}};
    });
  }
}

// Entries that are added to a plan gather at the same place.
TEST(RelatedSamples, AddedEntriesAreGathered) {
  for (const Related& model : Models()) {
    SCOPED_TRACE(model.name);
    const Model loaded = ModelOf(model.graph);
    const CompileOptions options = OptionsFor(model.losses, 3, {9});
    const Plan plan = Compile(loaded, options);
    const Plan more = AddEntry(loaded, options, AddEntry(loaded, options, plan, {EntryKind::kStep, 4}), {EntryKind::kEval, 7});
    ASSERT_EQ(more.entries.size(), 3U);
    ASSERT_EQ(more.state.size(), plan.state.size());
    for (size_t i = 0; i < plan.state.size(); ++i) EXPECT_EQ(more.state[i].places, plan.state[i].places) << plan.state[i].name;
  }
}

}  // namespace
}  // namespace gradloom
