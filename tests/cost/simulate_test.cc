// Predicted times of plans for a GPU, whose streams share its rates, and the number of streams that follows from them.
#include "compiler/cost/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

// Four branches of two products, each of `size` columns.
Model BranchesOf(int64_t size) {
  const std::string n = std::to_string(size);
  std::string weights, body;
  for (const char name : std::string("abcd")) {
    const std::string c(1, name);
    weights += (weights.empty() ? "" : ",\n") + ("float[" + n + ", " + n + "] " + c + "w") + ",\nfloat[" + n + ", " + n + "] " + c + "v";
    body += c + "h = MatMul (x, " + c + "w)\n " + c + "r = Relu (" + c + "h)\n " + c + "y = MatMul (" + c + "r, " + c + "v)\n ";
  }
  return Model::FromText("<ir_version: 10, opset_import: [\"\" : 23]>\ng (float[N, " + n + "] x, " + weights + ") => (float[N, " + n +
                         "] z)\n{\n " + body + "z = Sum (ay, by, cy, dy)\n}\n");
}

// For the CPU that runs the test the sizes are only numbers: nothing is computed.
Plan PlanOf(int64_t size, int streams, int devices = 1) {
  CompileOptions options;
  options.recipe.devices = devices;
  options.recipe.device = DeviceKind::kCuda;
  options.recipe.isa = "sm_90";
  options.recipe.streams = streams;
  options.recipe.threads = 4;
  options.entries.push_back({EntryKind::kPredict, size});
  return Compile(BranchesOf(size), options);
}

size_t ComputeStreams(const Plan& plan) {
  const std::vector<Stream>& streams = plan.programs.at(0).streams;
  return static_cast<size_t>(
      std::count_if(streams.begin(), streams.end(), [](const Stream& stream) { return stream.kind == StreamKind::kCompute; }));
}

// A GPU on which nothing but the work takes time.
Cluster WithoutFixedCosts() {
  Cluster cluster = LocalCluster(DeviceKind::kCuda, 1);
  cluster.device.launch_seconds = cluster.device.event_seconds = cluster.device.step_seconds = cluster.device.wake_seconds = 0;
  return cluster;
}

// A GPU that is never idle takes the sum of all works, on however many streams.
TEST(Simulate, StreamsShareTheRatesOfAGpu) {
  Cluster cluster = WithoutFixedCosts();
  const double one = Simulate(PlanOf(64, 1), 0, cluster).seconds;
  EXPECT_GT(one, 0);
  for (int streams : {2, 3, 4}) {
    const Plan plan = PlanOf(64, streams);
    ASSERT_EQ(ComputeStreams(plan), static_cast<size_t>(streams));
    const Simulation shared = Simulate(plan, 0, cluster);
    EXPECT_NEAR(shared.seconds, one, 1e-9 * one) << streams;
    // A launch takes the longer, the more run beside it.
    double busy = 0;
    for (double seconds : shared.programs.at(0).busy) busy += seconds;
    EXPECT_GT(busy, 1.5 * one) << streams;
  }
  cluster.device.streams_share = false;
  EXPECT_LT(Simulate(PlanOf(64, 4), 0, cluster).seconds, 0.5 * one);
}

// The host's part of a step is paid once, however many streams and launches there are.
TEST(Simulate, AStepHasAFixedCost) {
  Cluster cluster = WithoutFixedCosts();
  for (int streams : {1, 4}) {
    const Plan plan = PlanOf(64, streams);
    cluster.device.step_seconds = 0;
    const double work = Simulate(plan, 0, cluster).seconds;
    cluster.device.step_seconds = 1;
    EXPECT_NEAR(Simulate(plan, 0, cluster).seconds, 1 + work, 1e-9) << streams;
  }
}

TEST(Simulate, FixedCostsOfStreamsOverlap) {
  Cluster cluster = WithoutFixedCosts();
  cluster.device.launch_seconds = 1;
  const auto launches = [&](int streams) { return Simulate(PlanOf(64, streams), 0, cluster).seconds; };
  // On four streams: one branch after another would be at least eight products.
  EXPECT_LT(launches(4), 0.5 * launches(1));
}

// What was measured contains what other streams cost, and is taken as it is.
TEST(Simulate, MeasuredTimesAreNotSharedAgain) {
  const Cluster cluster = WithoutFixedCosts();
  const Plan plan = PlanOf(64, 4);
  const Program& program = plan.programs.at(0);
  Profile profile(plan.programs.size());
  double sum = 0;
  for (const Instruction& i : program.instructions) {
    profile[0].push_back(i.kind == InstructionKind::kLaunch ? 1 : -1);
    sum += i.kind == InstructionKind::kLaunch ? 1 : 0;
  }
  const Simulation made = Simulate(plan, 0, cluster, 0, &profile);
  for (const SimulatedSpan& span : made.programs.at(0).spans) {
    const bool launch = program.instructions[static_cast<size_t>(span.instruction)].kind == InstructionKind::kLaunch;
    EXPECT_NEAR(span.end - span.start, launch ? 1 : 0, 1e-9);
  }
  EXPECT_LT(made.seconds, 0.5 * sum);
}

// A training step of a chain of products on several devices, which all-reduce each gradient while the backward pass continues.
Plan TrainingPlan(int devices) {
  std::mt19937 random(7);
  std::string weights, body;
  for (int i = 0; i < 6; ++i) {
    const std::string n = std::to_string(i);
    weights += (i == 0 ? "" : ",\n") + Weights(random, "w" + n, {64, 64});
    body += "p" + n + " = MatMul (" + (i == 0 ? "x" : "h" + std::to_string(i - 1)) + ", w" + n + ")\n h" + n + " = Tanh (p" + n + ")\n ";
  }
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {64});
  options.recipe.bucket_bytes = 1;
  options.recipe.device = DeviceKind::kCuda;
  options.recipe.isa = "sm_90";
  options.recipe.streams = 1;
  return Compile(ModelOf("g (float[N, 64] x) => (float[N, 64] z)\n<" + weights + ">\n{\n " + body + "z = Identity (h5)\n}\n"), options);
}

TEST(Simulate, CollectivesTakeAShareOfAGpu) {
  Cluster cluster = WithoutFixedCosts();
  cluster.inside = {1e-8, 1e30};
  const Plan plan = TrainingPlan(2);
  const auto busy = [&](double share) {
    cluster.device.collective_share = share;
    const SimulatedProgram made = Simulate(plan, 0, cluster).programs.at(0);
    EXPECT_GT(made.communication, made.exposed);
    return std::pair(made.busy.at(0), made.communication - made.exposed);
  };
  const auto [alone, overlap] = busy(0);
  const auto [beside, longer] = busy(0.25);
  EXPECT_GT(overlap, 0);
  // While a collective runs, computation is slowed down to three quarters.
  EXPECT_NEAR(beside - alone, 0.25 * longer, 1e-9 * alone);
}

TEST(Simulate, RanksOnOneGpuShareItsRates) {
  Cluster cluster = WithoutFixedCosts();
  cluster.inside = {0, 1e30};
  const Plan plan = TrainingPlan(2);
  const double apart = Simulate(plan, 0, cluster).seconds;
  cluster.gpus = {3, 5};
  EXPECT_EQ(Simulate(plan, 0, cluster).seconds, apart);
  cluster.gpus = {3, 3};
  const Simulation together = Simulate(plan, 0, cluster);
  EXPECT_EQ(together.programs.size(), 2U);
  EXPECT_NEAR(together.seconds, 2 * apart, 1e-6 * apart);
}

// Attention over products of four heads, as in float32 there is no fused kernel.
TEST(Simulate, CountsTheScoresAndTheLaunchesOfAttentionOverProducts) {
  constexpr int64_t kLength = 2048;
  const Model model = Model::FromText(R"(<ir_version: 10, opset_import: ["" : 23]>
g (float[N, 4, 2048, 64] q, float[N, 4, 2048, 64] k, float[N, 4, 2048, 64] v) => (float[N, 4, 2048, 64] y)
{ y = Attention (q, k, v) }
)");
  CompileOptions options;
  options.recipe.device = DeviceKind::kCuda;
  options.recipe.isa = "sm_90";
  options.entries.push_back({EntryKind::kPredict, 1});
  const Plan plan = Compile(model, options);
  Cluster cluster = WithoutFixedCosts();
  cluster.device.launch_seconds = 1;
  cluster.device.bytes_per_second = cluster.device.flops_per_second = 1e30;
  EXPECT_NEAR(Simulate(plan, 0, cluster).seconds, 3, 1e-6);
  cluster.device.launch_seconds = 0;
  cluster.device.bytes_per_second = 1;
  // Scores are written and read twice each, operands and the result once.
  EXPECT_NEAR(Simulate(plan, 0, cluster).seconds, 4.0 * (4 * 4 * kLength * kLength + 4 * 4 * kLength * 64), 1);
}

// The last of many ranks gathers the samples of all. Each of them arrives at its collectives long before that one.
TEST(Simulate, ManyRanksThatWaitForTheLast) {
  std::mt19937 random(3);
  const Model model = ModelOf("g (float[N, 6] x) => (float[N, 3] z) <" + Weights(random, "w", Shape{6, 3}) + "> { z = MatMul (x, w) }");
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "y"}}, 1, {768});
  options.recipe.devices = 768;
  options.recipe.gather_to = 767;
  const Plan plan = Compile(model, options);
  const auto start = std::chrono::steady_clock::now();
  const Simulation simulated = Simulate(plan, 0, LocalCluster(DeviceKind::kCpu, 2));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(simulated.programs.size(), 768);
  EXPECT_GT(simulated.seconds, 0);
}

// Small products wait for launches, which streams overlap; large ones fill the GPU.
TEST(ChooseStreams, SeveralOnAGpuOnlyForSmallLaunches) {
  EXPECT_GT(ComputeStreams(PlanOf(64, 0)), 1U);
  EXPECT_EQ(ComputeStreams(PlanOf(8192, 0)), 1U);
}

// Two samples on three GPUs leave the last one without a launch.
TEST(ChooseStreams, OneForADeviceWithoutSamples) {
  const Plan plan = PlanOf(2, 0, 3);
  const RankBinding& last = plan.entries.at(0).ranks.at(2);
  EXPECT_EQ(last.shard_length, 0);
  const Program& idle = plan.programs.at(static_cast<size_t>(last.program));
  EXPECT_TRUE(idle.instructions.empty());
  EXPECT_EQ(idle.streams.size(), 1U);
}

}  // namespace
}  // namespace gradloom
