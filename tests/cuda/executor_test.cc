// Plans on emulated GPUs: the executor's streams, events, graphs and memory. Results must match the CPU.
#include "runtime/exec/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/run_case.h"
#include "tests/cuda/emulated_code.h"
#include "tests/cuda/emulated_runtime.h"

namespace gradloom {
namespace {

constexpr char kCases[] = "tests/conformance/cases/";
constexpr char kRecorded[] = "tests/conformance/recorded/";

class OnEmulatedGpus : public testing::Test {
 protected:
  void SetUp() override { emulated::Reset({.devices = 2, .seed = 7}); }
  // Aborts if anything is left over. Every plan's code must have been compiled before the first of its kernels was made.
  void TearDown() override {
    EXPECT_EQ(cuda::SourcesCompiledLate(), 0);
    emulated::Reset({});
  }
};

TrainingCase Case(const std::string& name) { return ReadTrainingCase(kCases + name); }

std::string Failures(const TrainingCase& recorded, const RunOptions& options) {
  std::string text;
  for (const std::string& failure : Compare(recorded, RunCase(recorded, options)).failures) text += failure + "\n";
  return text;
}

int Count(const std::string& what) {
  const auto& calls = emulated::Calls();
  return static_cast<int>(std::count_if(calls.begin(), calls.end(), [&](const emulated::Call& call) { return call.what == what; }));
}

TEST_F(OnEmulatedGpus, CasesTrainAsRecorded) {
  for (const char* name : {"housing_mlp", "linear_5_2", "lstm_classifier", "recommender", "tiny_gpt"}) {
    EXPECT_EQ(Failures(Case(name), {.devices = "cuda:0"}), "") << name;
  }
  // Every step except the first of each entry was a single graph launch.
  EXPECT_GT(Count("graph"), 0);
}

TEST_F(OnEmulatedGpus, GraphsAndSingleLaunchesGiveTheSameBits) {
  const TrainingCase recorded = Case("lenet");
  const TrainingRun captured = RunCase(recorded, {.devices = "cuda:0"});
  const int graphs = Count("graph");
  const TrainingRun single = RunCase(recorded, {.devices = "cuda:0", .graph = false});
  EXPECT_GT(graphs, 0);
  EXPECT_EQ(Count("graph"), graphs);
  EXPECT_EQ(captured.losses, single.losses);
}

// Streams advance in a random order that respects only the events.
TEST_F(OnEmulatedGpus, NoOrderOfStreamsChangesABit) {
  const TrainingCase recorded = Case("lenet");
  std::vector<double> losses;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    emulated::Reset({.devices = 2, .seed = seed});
    for (const bool graph : {true, false}) {
      const TrainingRun run = RunCase(recorded, {.streams = 3, .devices = "cuda:0", .graph = graph});
      if (losses.empty()) losses = run.losses;
      EXPECT_EQ(run.losses, losses) << "seed " << seed << ", graph " << graph;
    }
  }
}

// Branches and loops are decided on the host, for any order of the streams.
TEST_F(OnEmulatedGpus, BranchesAndLoopsMatchTheCpu) {
  for (const char* name :
       {"control_branch", "control_branches", "control_loop_over_time", "control_loop_repeated", "control_scan", "control_until"}) {
    const TrainingCase recorded = ReadTrainingCase(kRecorded + std::string(name));
    std::vector<double> losses;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      emulated::Reset({.devices = 2, .seed = seed});
      const TrainingRun run = RunCase(recorded, {.streams = seed == 1 ? 1 : 3, .devices = "cuda:0", .graph = seed != 3});
      // The work between two decisions is captured.
      EXPECT_EQ(Count("graph") > 0, seed != 3) << name;
      if (losses.empty()) losses = run.losses;
      EXPECT_EQ(run.losses, losses) << name << ", seed " << seed;
      for (const std::string& failure : Compare(recorded, run).failures) ADD_FAILURE() << name << ": " << failure;
    }
    // The constants of a body belong to the device that runs its stage.
    EXPECT_EQ(Failures(recorded, {.devices = "cuda:0,0", .stages = 2, .place_seed = 1, .chaos = 2}), "") << name;
  }
}

TEST_F(OnEmulatedGpus, SeveralDevicesShareABatch) {
  const TrainingCase recorded = Case("lenet");
  for (const char* devices : {"cuda:0,cuda:0", "cuda:0,1", "cuda:0,0,0"}) {
    EXPECT_EQ(Failures(recorded, {.streams = 2, .devices = devices}), "") << devices;
    EXPECT_EQ(Failures(recorded, {.devices = devices, .graph = false}), "") << devices;
  }
}

// Each device accumulates its own gradients, and the update, a separate graph, sums them.
TEST_F(OnEmulatedGpus, SeveralDevicesAccumulateGradients) {
  for (const char* name : {"clip_accumulate", "batches_accumulate_uneven"}) {
    const TrainingCase recorded = ReadTrainingCase(kRecorded + std::string(name));
    EXPECT_EQ(Failures(recorded, {.streams = 2, .devices = "cuda:0,0,1"}), "") << name;
    EXPECT_EQ(Failures(recorded, {.devices = "cuda:0,1", .graph = false}), "") << name;
    EXPECT_EQ(Failures(recorded, {.devices = "cuda:0,1,0,1", .stages = 2, .place_seed = 2}), "") << name;
  }
}

TEST_F(OnEmulatedGpus, ModelStagesOnSeparateDevices) {
  const TrainingCase recorded = Case("lenet");
  EXPECT_EQ(Failures(recorded, {.devices = "cuda:0,1", .stages = 2, .place_seed = 3}), "");
  EXPECT_EQ(Failures(recorded, {.devices = "cuda:0,0", .gather_to = 0}), "");
}

TEST_F(OnEmulatedGpus, DelaysChangeNoBit) {
  const TrainingCase recorded = Case("housing_mlp");
  const TrainingRun calm = RunCase(recorded, {.devices = "cuda:0"});
  EXPECT_EQ(RunCase(recorded, {.devices = "cuda:0", .chaos = 5}).losses, calm.losses);
}

TEST_F(OnEmulatedGpus, WorksWithoutPinnedMemory) {
  emulated::Reset({.devices = 1, .seed = 2, .pinning_fails = true});
  EXPECT_EQ(Failures(Case("housing_mlp"), {.devices = "cuda:0"}), "");
}

TEST_F(OnEmulatedGpus, FailingLaunchNamesItsNode) {
  const TrainingCase recorded = Case("housing_mlp");
  int named = 0;
  for (int call = 0; call < 300; call += 23) {
    emulated::Reset({.devices = 1, .seed = 2, .fails_after = call});
    try {
      RunCase(recorded, {.devices = "cuda:0"});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
      EXPECT_NE(error.message().find("cudaErrorLaunchFailure"), std::string::npos) << error.Describe();
      named += error.where().find('\'') != std::string::npos;
    }
  }
  EXPECT_GT(named, 0);
}

TEST_F(OnEmulatedGpus, MissingDeviceIsAnError) {
  try {
    RunCase(Case("housing_mlp"), {.devices = "cuda:5"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    EXPECT_NE(error.message().find("cuda:5"), std::string::npos);
  }
}

TEST_F(OnEmulatedGpus, ReportsMissingMemoryInBytes) {
  const TrainingCase recorded = Case("lenet");
  const auto refusal = [&](int64_t memory_bytes) {
    emulated::Reset({.devices = 1, .memory_bytes = memory_bytes});
    try {
      RunCase(recorded, {.devices = "cuda:0"});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResource);
      return error.message() + " | " + error.help();
    }
    return std::string();
  };
  const std::string nothing = refusal(4096);
  EXPECT_NE(nothing.find("0 MiB"), std::string::npos) << nothing;
  EXPECT_EQ(nothing.find("--batch"), std::string::npos) << "no batch fits: " << nothing;
  EXPECT_NE(nothing.find("--precision bf16"), std::string::npos) << nothing;
  // With little memory a smaller batch is suggested; with enough, nothing is refused.
  std::string some;
  int64_t bytes = 4096;
  for (std::string last = nothing; !last.empty(); bytes += bytes / 4) {
    last = refusal(bytes);
    if (last.find("--batch") != std::string::npos) some = last;
  }
  EXPECT_NE(some.find(", which fits"), std::string::npos) << some;
}

TEST_F(OnEmulatedGpus, RejectsPlansForAnotherArchitecture) {
  try {
    RunCase(Case("housing_mlp"), {.devices = "cuda:0", .isa = "sm_80"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    EXPECT_NE(error.message().find("compiled for sm_80"), std::string::npos) << error.Describe();
    EXPECT_NE(error.help().find("--target sm_90"), std::string::npos) << error.Describe();
  }
}

}  // namespace
}  // namespace gradloom
