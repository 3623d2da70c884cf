// Compares a replicated trunk whose tail and loss are on one device with a single device.
#include "compiler/passes/devices/gather_tail.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/onnx_loss.h"
#include "runtime/plan/memory_report.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

// Dropout in the trunk and the tail, and a weight that both read.
const std::string kNet = R"(
g (float[N, 4] x) => (float[N, 3] z)
<float[4, 6] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3, 0.4, -0.9, 0.6, 1.2, -0.7, 0.5, -1.1, 0.35},
 float[6] b = {0.1, -0.2, 0.3, 0.05, -0.15, 0.25},
 float[6, 6] s = {0.3, -0.2, 0.1, 0.4, -0.5, 0.2, 0.7, 0.1, -0.3, 0.2, 0.6, -0.1, 0.15, -0.35, 0.25, 0.45, -0.05, 0.3,
                  0.5, 0.2, -0.4, 0.1, 0.3, -0.6, 0.35, -0.15, 0.2, 0.55, -0.25, 0.4, -0.3, 0.6, 0.1, -0.2, 0.5, 0.05},
 float[6, 3] v = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3, 0.4, -0.9},
 float p = {0.25}, bool t = {1}> {
  [a1] a1 = MatMul (x, w)
  [a2] a2 = Add (a1, b)
  [a3] a3 = Tanh (a2)
  [a4] a4 = MatMul (a3, s)
  [a5] a5 = Dropout (a4, p, t)
  [h1] h1 = MatMul (a5, s)
  [h2] h2 = Dropout (h1, p, t)
  [h3] z = MatMul (h2, v)
}
)";

// Means in the tail after a weight and after rows of a table: their gradient is broadcast along an axis that grows with the batch.
const std::string kMeans = R"(
g (float[N, 4] x) => (float[N, 3] z)
<float[4, 6] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3, 0.4, -0.9, 0.6, 1.2, -0.7, 0.5, -1.1, 0.35},
 float[6, 6] s = {0.3, -0.2, 0.1, 0.4, -0.5, 0.2, 0.7, 0.1, -0.3, 0.2, 0.6, -0.1, 0.15, -0.35, 0.25, 0.45, -0.05, 0.3,
                  0.5, 0.2, -0.4, 0.1, 0.3, -0.6, 0.35, -0.15, 0.2, 0.55, -0.25, 0.4, -0.3, 0.6, 0.1, -0.2, 0.5, 0.05},
 float[4, 3] v = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9}, int64[3] parts = {-1, 2, 3}> {
  [a1] a1 = MatMul (x, w)
  [a2] a2 = Tanh (a1)
  [h1] h1 = MatMul (a2, s)
  [h2] h2 = Reshape (h1, parts)
  [h3] h3 = ReduceMean <axes = [1], keepdims = 0> (h2)
  [h4] h4 = ArgMax <axis = 1, keepdims = 1> (x)
  [h5] h5 = Gather (v, h4)
  [h6] h6 = ReduceMean <axes = [1], keepdims = 0> (h5)
  [h7] z = Add (h3, h6)
}
)";

Batch Make(std::mt19937& random, int64_t size) { return {{"x", Random(random, Shape{size, 4})}, {"target", Classes(random, size, 3)}}; }

void ExpectGathers(const std::function<void(CompileOptions&)>& change, const std::string& net = kNet) {
  const Model model = ModelOf(net);
  std::mt19937 random(3);
  const std::vector<int64_t> sizes = {9, 9, 5, 1};
  std::vector<Batch> batches;
  for (int64_t size : sizes) batches.push_back(Make(random, size));
  const auto options = [&](int devices) {
    CompileOptions made = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {9, 5, 1});
    change(made);
    return made;
  };
  const auto one = Train(model, options(1), batches);
  for (int devices : {2, 3, 8}) {
    for (int device : {0, devices / 2, devices - 1}) {
      for (const char* tail : {"", "h*"}) {
        SCOPED_TRACE(std::to_string(devices) + " devices, tail '" + tail + "' on " + std::to_string(device));
        CompileOptions gathered = options(devices);
        gathered.recipe.gather_to = device;
        if (*tail != '\0') gathered.recipe.place = {{tail, device}};
        const auto several = Train(model, gathered, batches);
        ExpectNear(one, several, 2e-5);
        gathered.recipe.streams = 2;
        ExpectSameBits(several, Train(model, gathered, batches, 4));
      }
    }
  }
}

TEST(GatherTail, MatchesOneDevice) {
  ExpectGathers([](CompileOptions&) {});
}

TEST(GatherTail, ClippedAndAccumulated) {
  ExpectGathers([](CompileOptions& options) {
    options.recipe.optimizer.clip_norm = 0.2;
    options.recipe.accumulate = 2;
    options.recipe.fetch_gradients = false;
  });
}

TEST(GatherTail, MeansOverTheGlobalBatch) {
  ExpectGathers([](CompileOptions&) {}, kMeans);
}

// Both devices compute the statistics of one sample, and only one reads what is normalized with them.
TEST(GatherTail, StatisticsOfOneSample) {
  const Model model = ModelOf(R"(
g (float[N, 2, 3] x) => (float[N, 3] z)
<float[2, 3] w = {1, -2, 0.5, 1, 0.3, 2}, float[2] scale = {1, 0.5}, float[2] offset = {0.1, -0.2}, float[2] mean = {0, 0},
 float[2] variance = {1, 1}, float[2, 3] v = {1, -2, 0.5, 1, 0.3, 2}> {
  [a1] a1 = Mul (x, w)
  [a2] a2 = BatchNormalization (a1, scale, offset, mean, variance)
  [h1] h1 = ReduceMean <axes = [2], keepdims = 0> (a2)
  [h2] z = MatMul (h1, v)
})");
  std::mt19937 random(5);
  std::vector<Batch> batches;
  for (int i = 0; i < 3; ++i) batches.push_back({{"x", Random(random, Shape{1, 2, 3})}, {"target", Classes(random, 1, 3)}});
  const auto train = [&](int devices) {
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {1});
    options.recipe.accumulate = 2;
    options.recipe.fetch_gradients = false;
    if (devices > 1) options.recipe.gather_to = 0;
    if (devices > 1) options.recipe.place = {{"h*", 0}};
    return Train(model, options, batches);
  };
  ExpectNear(train(1), train(2), 2e-5);
}

TEST(GatherTail, WeightsOfTheTailAreOnOneDevice) {
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 3, {9});
  options.recipe.gather_to = 1;
  options.recipe.place = {{"h*", 1}};
  const Plan plan = Compile(ModelOf(kNet), options);
  ASSERT_EQ(plan.places.size(), 2U);
  EXPECT_EQ(plan.PlaceOf(0), 0);
  EXPECT_EQ(plan.PlaceOf(1), 1);
  EXPECT_EQ(plan.PlaceOf(2), 0);
  for (const StateTensor& state : plan.state) {
    EXPECT_EQ(state.in_place(0), !state.name.starts_with("v")) << state.name;
    EXPECT_TRUE(state.in_place(1)) << state.name;
  }
  const MemoryReport report = ReportMemory(plan);
  EXPECT_GT(report.places[1].total_bytes(), report.places[0].total_bytes());
}

// The loss is on the device that gathers, and so is what replaces a part of it.
TEST(GatherTail, ReplacedNodesOfTheLossStayThere) {
  LossTerm loss{.type = "graph"};
  loss.graph = std::make_shared<const OnnxLoss>(Model::FromText(R"(<ir_version: 10, opset_import: ["": 21]>
  l (float[n,3] z, float[n,3] t) => (float loss) {
    p = Sigmoid(z)
    q = Log(p)
    m = Mul(q, t)
    loss = ReduceMean<keepdims = 0>(m)
  })"));
  CompileOptions options = OptionsFor({loss}, 2, {8});
  options.recipe.gather_to = 0;
  options.control.disabled = {"fuse_pointwise"};
  const Plan plan = Compile(ModelOf(kNet), options);
  const auto launches = [&](size_t rank) {
    const Program& program = plan.programs[static_cast<size_t>(plan.entries.front().ranks.at(rank).program)];
    return std::ranges::count(program.instructions, "Softplus", &Instruction::op);
  };
  EXPECT_GT(launches(0), 0);
  EXPECT_EQ(launches(1), 0);
}

// A batch of one sample is not divided. Only the device with the tail needs the results of the recurrent layer, but all compute its
// gradient.
TEST(GatherTail, OneSampleOfARecurrentLayer) {
  std::mt19937 random(3);
  const std::string graph = R"(
g (float[5, N, 4] x, int64[N] n) => (float[N, 2] z)
<)" + Weights(random, "w", {1, 6, 4}) +
                            ", " + Weights(random, "r", {1, 6, 2}) + ", " + Weights(random, "b", {1, 12}) + R"(,
 int64 zero = {0}, int64 one = {1}, int64[1] direction = {1}, int64[2] flat = {-1, 2}>
{
  s = Shape <start = 1, end = 2> (x) count = Squeeze (s) ids = Range (zero, count, one)
  y = GRU <hidden_size = 2, linear_before_reset = 1> (x, w, r, b) h = Squeeze (y, direction) rows = Reshape (h, flat)
  first = Mul (n, count) at = Add (first, ids)
  z = Gather <axis = 0> (rows, at)
}
)";
  ExpectDivides(graph, {{.type = "output", .output = "z"}}, {4, 1, 5}, [](std::mt19937& numbers, int64_t size) {
    return Batch{{"x", Random(numbers, Shape{5, size, 4})}, {"n", Classes(numbers, size, 5)}};
  });
}

TEST(GatherTail, RejectsInvalidDevices) {
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 2, {9});
  options.recipe.gather_to = 2;
  EXPECT_THROW(Compile(ModelOf(kNet), options), Error);
  options.recipe.gather_to = 1;
  options.recipe.place = {{"h*", 0}};
  EXPECT_THROW(Compile(ModelOf(kNet), options), Error);
}

}  // namespace
}  // namespace gradloom
