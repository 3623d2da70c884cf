// Models with LSTM, GRU and RNN, compiled for a GPU. The forward pass saves what the gradients need, with the same bits as recomputing it.
#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "compiler/cost/simulate.h"
#include "tests/passes/recurrent_net.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

const RecurrentCase kCases[] = {
    {"LSTM", "", 4, 1},
    {"LSTM", ", direction = \"bidirectional\"", 4, 2},
    {"GRU", ", direction = \"reverse\"", 3, 1},
    {"GRU", ", direction = \"bidirectional\", linear_before_reset = 1", 3, 2},
    {"RNN", ", direction = \"bidirectional\"", 1, 2},
};

CompileOptions OnGpu(Precision precision) {
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {6});
  options.recipe.device = DeviceKind::kCuda;
  options.recipe.isa = "sm_90";
  options.recipe.precision = precision;
  return options;
}

TEST(CudaRecurrentTraining, SavedStepsGiveTheSameBits) {
  for (const RecurrentCase& c : kCases) {
    for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
      SCOPED_TRACE(c.op + " " + c.attributes);
      std::mt19937 random(5);
      const Model model = ModelOf(RecurrentNet(c, random));
      std::vector<Batch> batches;
      for (int i = 0; i < 3; ++i) batches.push_back({{"x", Random(random, Shape{6, 4, 3})}, {"target", Classes(random, 6, 2)}});
      CompileOptions options = OnGpu(precision);
      const Plan plan = Compile(model, options);
      EXPECT_EQ(Count(plan, c.op == "RNN" ? "RNN" : c.op == "GRU" ? "GruTraining" : "LstmTraining"), 1);
      const auto kept = Train(model, options, batches);
      options.control.disabled = {"keep_steps"};
      EXPECT_EQ(Count(Compile(model, options), c.op), 1);
      ExpectSameBits(kept, Train(model, options, batches));
    }
  }
}

// Counted in launches: in this simulation each launch takes a second and nothing else takes time.
TEST(CudaRecurrentTraining, SimulatorCountsRecomputedSteps) {
  Cluster cluster = LocalCluster(DeviceKind::kCuda, 1);
  cluster.device = {.flops_per_second = 1e30,
                    .tf32_flops_per_second = 1e30,
                    .half_flops_per_second = 1e30,
                    .bytes_per_second = 1e30,
                    .launch_seconds = 1};
  for (const auto& [c, launches_a_step] : {std::pair(kCases[0], 2), std::pair(kCases[2], 4), std::pair(kCases[3], 2)}) {
    std::mt19937 random(5);
    const Model model = ModelOf(RecurrentNet(c, random));
    CompileOptions options = OnGpu(Precision::kFloat32);
    options.recipe.streams = 1;
    const double kept = Simulate(Compile(model, options), 0, cluster).seconds;
    options.control.disabled = {"keep_steps"};
    EXPECT_NEAR(Simulate(Compile(model, options), 0, cluster).seconds - kept, 4 * launches_a_step, 1e-3) << c.op;
    EXPECT_GT(kept, 2 * 4 * launches_a_step);
  }
}

// A GPU's rates are those of the device: the plan for one, and its predicted time, do not depend on the threads of the host.
TEST(CudaRecurrentTraining, HostThreadsDoNotSpeedUpAGpu) {
  std::mt19937 random(5);
  const Model model = ModelOf(RecurrentNet(kCases[0], random));
  Cluster cluster = LocalCluster(DeviceKind::kCuda, 1);
  cluster.device.flops_per_second = cluster.device.tf32_flops_per_second = 1e6;  // the time of products counts
  for (int streams : {0, 1, 2}) {
    std::vector<double> seconds;
    std::vector<size_t> used;
    for (int threads : {1, 2, 16}) {
      CompileOptions options = OnGpu(Precision::kFloat32);
      options.recipe.streams = streams;
      options.recipe.threads = threads;
      const Plan plan = Compile(model, options);
      used.push_back(plan.programs.at(0).streams.size());
      seconds.push_back(Simulate(plan, 0, cluster).seconds);
    }
    EXPECT_EQ(std::set(used.begin(), used.end()).size(), 1U) << streams;
    EXPECT_EQ(std::set(seconds.begin(), seconds.end()).size(), 1U) << streams;
  }
}

TEST(CudaRecurrentTraining, RecomputesWhatNoKernelSaves) {
  std::mt19937 random(5);
  const Plan plan = Compile(ModelOf(RecurrentNet({"LSTM", ", clip = 0.5", 4, 1}, random)), OnGpu(Precision::kFloat32));
  EXPECT_EQ(Count(plan, "LSTM"), 1);
  EXPECT_EQ(Count(plan, "LstmGrad"), 1);
}

TEST(CudaRecurrentTraining, MatchesTheCpu) {
  for (const RecurrentCase& c : kCases) {
    SCOPED_TRACE(c.op + " " + c.attributes);
    std::mt19937 random(7);
    const Model model = ModelOf(RecurrentNet(c, random));
    const std::vector<Batch> batches{{{"x", Random(random, Shape{6, 4, 3})}, {"target", Classes(random, 6, 2)}}};
    const auto cpu = Train(model, OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {6}), batches);
    ExpectNear(cpu, Train(model, OnGpu(Precision::kFloat32), batches), 1e-4);
  }
}

}  // namespace
}  // namespace gradloom
