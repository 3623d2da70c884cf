// Tests micro-batches that the parts of a placed model compute at the same time.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "compiler/cost/simulate.h"
#include "runtime/plan/memory_report.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr int kLayers = 3;

// A chain of equal layers, which are nodes l0, l1 ...
Model Chain(std::mt19937& random, int64_t width) {
  std::string weights, nodes, from = "x";
  for (int i = 0; i < kLayers; ++i) {
    const std::string number = std::to_string(i), to = i + 1 == kLayers ? "z" : "h" + number;
    weights += (i == 0 ? "" : ", ") + Weights(random, "w" + number, Shape{width, width}, 0.3F);
    nodes += "[l" + number + "] a" + number + " = MatMul (" + from + ", w" + number + ")\n[l" + number + "t] " + to + " = Tanh (a" +
             number + ")\n";
    from = to;
  }
  const std::string extent = std::to_string(width);
  return ModelOf("g (float[N, " + extent + "] x) => (float[N, " + extent + "] z)\n<" + weights + "> {\n" + nodes + "}");
}

std::vector<PlaceRule> OneLayerEach() {
  std::vector<PlaceRule> rules;
  for (int i = 0; i < kLayers; ++i) rules.push_back({"l" + std::to_string(i) + "*", i});
  return rules;
}

CompileOptions ChainOptions(int pipeline, int64_t batch) {
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, kLayers, {batch});
  options.recipe.place = OneLayerEach();
  options.recipe.pipeline = pipeline;
  options.recipe.fetch_gradients = false;
  return options;
}

const Program& ProgramOf(const Plan& plan, int rank) {
  return plan.programs[static_cast<size_t>(plan.entries[0].ranks[static_cast<size_t>(rank)].program)];
}

// The phases of the launches that come from a node, in order.
std::vector<PlanPhase> PhasesOf(const Program& program, const std::string& origin) {
  std::vector<PlanPhase> phases;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.kind == InstructionKind::kLaunch && instruction.origin == origin && instruction.phase != PlanPhase::kUpdate)
      phases.push_back(instruction.phase);
  }
  return phases;
}

// Stage s of S computes S - s forward passes before the first backward pass, and has at most as many micro-batches under way.
TEST(Pipeline, OneForwardOneBackward) {
  std::mt19937 random(3);
  for (const int micro_batches : {2, 3, 5, 8}) {
    const Plan plan = Compile(Chain(random, 8), ChainOptions(micro_batches, 16 * micro_batches));
    for (int stage = 0; stage < kLayers; ++stage) {
      SCOPED_TRACE(std::to_string(micro_batches) + " micro-batches, stage " + std::to_string(stage));
      const std::vector<PlanPhase> phases = PhasesOf(ProgramOf(plan, stage), "l" + std::to_string(stage));
      const auto forward = std::count(phases.begin(), phases.end(), PlanPhase::kForward);
      EXPECT_EQ(forward, micro_batches);
      const auto backward = static_cast<int64_t>(phases.size()) - forward;
      ASSERT_EQ(backward % micro_batches, 0);
      const int64_t each = backward / micro_batches;  // launches of a backward pass
      int64_t ahead = 0, most = 0, launches = 0;
      for (const PlanPhase phase : phases) {
        if (phase == PlanPhase::kForward) {
          most = std::max(most, ++ahead);
        } else if (++launches % each == 0) {
          --ahead;
        }
      }
      EXPECT_EQ(most, std::min(micro_batches, kLayers - stage));
      const auto first = std::find(phases.begin(), phases.end(), PlanPhase::kBackward) - phases.begin();
      EXPECT_EQ(first, most);
    }
  }
}

TEST(Pipeline, OverlapsStagesAndSavesMemory) {
  std::mt19937 random(3);
  const Model model = Chain(random, 256);
  const Plan whole = Compile(model, ChainOptions(1, 2048)), divided = Compile(model, ChainOptions(8, 2048));
  const Cluster cluster = LocalCluster(DeviceKind::kCpu, 8);
  EXPECT_LT(Simulate(divided, 0, cluster).seconds, 0.6 * Simulate(whole, 0, cluster).seconds);
  EXPECT_LT(ReportMemory(divided, 0).fullest().transient_bytes, ReportMemory(whole, 0).fullest().transient_bytes);
}

// Four micro-batches of two copies would have two samples each, so that the second copy had two of ten samples.
TEST(Pipeline, CopiesHaveSimilarShares) {
  std::mt19937 random(3);
  CompileOptions options = ChainOptions(4, 10);
  options.recipe.devices = 2 * kLayers;
  const Plan plan = Compile(Chain(random, 8), options);
  std::vector<int64_t> shares;
  for (const RankBinding& rank : plan.entries[0].ranks) shares.push_back(rank.shard_length);
  EXPECT_EQ(shares, (std::vector<int64_t>{6, 6, 6, 4, 4, 4}));
}

// One batch after another, the devices may work for different times, so the cut is where few bytes cross, near the embedding.
TEST(Pipeline, CutsWhereDevicesWorkEquallyLong) {
  std::mt19937 random(7);
  constexpr int kMost = 13;
  std::string weights = Weights(random, "w0", Shape{4096, 8}, 0.3F), nodes = "[l0] h0 = Gather (w0, x)\n";
  for (int i = 1; i < kMost; ++i) {
    const std::string number = std::to_string(i), from = "h" + std::to_string(i - 1), to = i + 1 == kMost ? "z" : "h" + number;
    weights += ", " + Weights(random, "w" + number, Shape{i == 1 ? 8 : 64, 64}, 0.3F);
    nodes += "[l" + number + "] " + to + " = MatMul (" + from + ", w" + number + ")\n";
  }
  const Model model = ModelOf("g (int64[N] x) => (float[N, 64] z)\n<" + weights + "> {\n" + nodes + "}");
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {64});
  options.recipe.fetch_gradients = false;
  const int64_t all = ReportMemory(Compile(model, options)).fullest().total_bytes();
  options.recipe.devices = 2;
  options.recipe.place_auto = true;
  options.recipe.memory_limit = all * 9 / 10;
  const auto first_stage = [&] {
    const Plan plan = Compile(model, options);
    EXPECT_EQ(plan.places.size(), 2U);
    return std::count_if(plan.state.begin(), plan.state.end(),
                         [](const StateTensor& state) { return state.kind == StateKind::kParameter && state.in_place(0); });
  };
  EXPECT_LE(first_stage(), 2);
  options.recipe.pipeline = 4;
  EXPECT_GT(first_stage(), 4);
}

// Micro-batches have a cost of their own, and there are no more of them than samples.
TEST(Pipeline, IsNoSlowerWhereThePlacementIsAutomatic) {
  std::mt19937 random(3);
  const Model model = Chain(random, 16);
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 2, {32});
  options.recipe.place_auto = true;
  options.recipe.fetch_gradients = false;
  const Cluster cluster = LocalCluster(DeviceKind::kCpu, 2);
  const double alone = Simulate(Compile(model, options), 0, cluster).seconds;
  for (const int pipeline : {4, 32, 1000}) {
    SCOPED_TRACE(pipeline);
    options.recipe.pipeline = pipeline;
    CompileReport report;
    const Plan plan = Compile(model, options, &report);
    EXPECT_LE(Simulate(plan, 0, cluster).seconds, 1.1 * alone);
    const bool warned = std::any_of(report.warnings.begin(), report.warnings.end(), [](const std::string& warning) {
      return warning.find("--pipeline has no effect") != std::string::npos;
    });
    EXPECT_EQ(warned, plan.places.size() == 1);
  }
}

class PipelineOfBatches : public testing::Test {
 protected:
  std::vector<PlaceRule> AnyPlacement(const std::vector<std::string>& nodes, int stages) {
    std::vector<PlaceRule> rules;
    for (const std::string& node : nodes) rules.push_back({node, static_cast<int>(random_() % static_cast<uint64_t>(stages))});
    rules.back().stage = stages - 1;  // so that the plan has exactly this many stages
    return rules;
  }

  // Compares random placements with one device.
  void ExpectAnyPlacement(const std::string& graph, const std::vector<LossTerm>& losses, const std::vector<std::string>& nodes,
                          const std::vector<int64_t>& sizes, const std::function<Batch(int64_t)>& make,
                          const std::function<void(CompileOptions&)>& change = {}) {
    const Model model = ModelOf(graph);
    std::vector<Batch> batches;
    for (const int64_t size : sizes) batches.push_back(make(size));
    std::vector<int64_t> distinct = sizes;
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    const auto options = [&](int devices) {
      CompileOptions made = OptionsFor(losses, devices, distinct);
      if (change) change(made);
      return made;
    };
    const auto one = Train(model, options(1), batches);
    for (const int copies : {1, 2}) {
      for (int round = 0; round < 4; ++round) {
        const int stages = 2 + round % 2, pipeline = 2 + round;
        SCOPED_TRACE(std::to_string(stages) + " stages, " + std::to_string(copies) + " copies, " + std::to_string(pipeline) +
                     " micro-batches");
        CompileOptions several = options(copies * stages);
        several.recipe.place = AnyPlacement(nodes, stages);
        several.recipe.pipeline = pipeline;
        if (round % 2 == 1) several.recipe.streams = 2;
        const auto made = Train(model, several, batches);
        ExpectNear(one, made, 2e-5);
        ExpectSameBits(made, Train(model, several, batches, static_cast<uint64_t>(round + 1)));
      }
    }
  }

  Tensor Floats(Shape shape) { return Random(random_, std::move(shape)); }

  std::mt19937 random_{5};
};

// A weight that two branches read, which may be on different stages; batches that are not multiples of the micro-batches.
constexpr char kTwoBranches[] = R"((float[N, 8] x, float[N, 8] y) => (float[N, 4] z)
<%s> {
  [a1] a1 = MatMul (x, shared)
  [a2] a2 = Tanh (a1)
  [b1] b1 = MatMul (y, shared)
  [b2] b2 = Sigmoid (b1)
  [c1] c1 = Concat <axis = 1> (a2, b2)
  [c2] c2 = MatMul (c1, head)
  [c3] z = Add (c2, bias)
})";

std::string TwoBranches(std::mt19937& random) {
  std::string text = kTwoBranches;
  return "g " + text.replace(text.find("%s"), 2,
                             Weights(random, "shared", Shape{8, 8}) + ", " + Weights(random, "head", Shape{16, 4}) + ", " +
                                 Weights(random, "bias", Shape{4}));
}
const std::vector<std::string> kBranchNodes = {"a1", "a2", "b1", "b2", "c1", "c2", "c3"};

TEST_F(PipelineOfBatches, AnyPlacement) {
  ExpectAnyPlacement(TwoBranches(random_), {{.type = "cross_entropy", .output = "z", .target = "target"}}, kBranchNodes, {9, 9, 4, 1},
                     [&](int64_t n) {
                       return Batch{{"x", Floats({n, 8})}, {"y", Floats({n, 8})}, {"target", Classes(random_, n, 4)}};
                     });
}

// The mean over the labels that count is one over the whole batch, so that each micro-batch needs the number of all.
TEST_F(PipelineOfBatches, MeanOverLabelsThatCount) {
  ExpectAnyPlacement(TwoBranches(random_), {{.type = "cross_entropy", .output = "z", .target = "target", .ignore_index = 2}}, kBranchNodes,
                     {9, 6}, [&](int64_t n) {
                       return Batch{{"x", Floats({n, 8})}, {"y", Floats({n, 8})}, {"target", Classes(random_, n, 4)}};
                     });
}

TEST_F(PipelineOfBatches, ClippedAndAccumulated) {
  ExpectAnyPlacement(
      TwoBranches(random_), {{.type = "cross_entropy", .output = "z", .target = "target"}}, kBranchNodes, {9, 9, 9, 9},
      [&](int64_t n) {
        return Batch{{"x", Floats({n, 8})}, {"y", Floats({n, 8})}, {"target", Classes(random_, n, 4)}};
      },
      [](CompileOptions& options) {
        options.recipe.optimizer.clip_norm = 0.1;
        options.recipe.optimizer.type = "lamb";
        options.recipe.accumulate = 2;
        options.recipe.fetch_gradients = false;
      });
}

// Each element of the whole batch has a random number of its own, and statistics are those of the whole batch.
TEST_F(PipelineOfBatches, DropoutAndBatchStatistics) {
  ExpectAnyPlacement(
      "g (float[N, 6] x) => (float[N, 3] z)\n<" + Weights(random_, "w1", Shape{6, 8}) + ", " + Weights(random_, "w2", Shape{8, 3}) +
          ", float[8] scale = {1, 1, 0.9, 0.8, 1, 1.2, 1, 1}, float[8] bias = {0, 0, 0.1, 0, 0, 0, 0, 0}, float[8] mean = {0, 0, 0, 0, 0, "
          "0, "
          "0, 0}, float[8] var = {1, 1, 1, 1, 1, 1, 1, 1}, float ratio = {0.4}, bool training = {1}> {\n"
          "[a] a = MatMul (x, w1)\n[n] n = BatchNormalization (a, scale, bias, mean, var)\n[r] r = Relu (n)\n"
          "[d] d = Dropout (r, ratio, training)\n[b] z = MatMul (d, w2)\n}",
      {{.type = "cross_entropy", .output = "z", .target = "target"}}, {"a", "n", "r", "d", "b"}, {10, 7},
      [&](int64_t n) {
        return Batch{{"x", Floats({n, 6})}, {"target", Classes(random_, n, 3)}};
      },
      [](CompileOptions& options) { options.recipe.sync_bn = true; });
}

// Samples along the second axis of inputs and outputs, and labels with several positions of each sample.
TEST_F(PipelineOfBatches, SamplesThatAreNotContiguous) {
  ExpectAnyPlacement(
      "g (float[5, 6, 6] x) => (float[5, 6, 4] z)\n<" + Weights(random_, "w1", Shape{6, 8}) + ", " + Weights(random_, "w2", Shape{8, 4}) +
          "> {\n[a] a = MatMul (x, w1)\n[t] t = Tanh (a)\n[b] z = MatMul (t, w2)\n}",
      {{.type = "cross_entropy", .output = "z", .target = "target", .class_axis = -1}}, {"a", "t", "b"}, {6, 5},
      [&](int64_t n) {
        Tensor classes(DType::kInt64, Shape{5, n});
        for (int64_t& value : classes.as<int64_t>()) value = static_cast<int64_t>(random_() % 4);
        return Batch{{"x", Floats({5, n, 6})}, {"target", std::move(classes)}};
      },
      [](CompileOptions& options) { options.import.batch_axis = 1; });
}

}  // namespace
}  // namespace gradloom
