// Plans on emulated GPUs: the executor's streams, events, graphs and memory. Results must match the CPU.
#include "runtime/exec/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/device/device.h"
#include "runtime/exec/device_memory.h"
#include "runtime/session/session.h"
#include "tests/conformance/run_case.h"
#include "tests/cuda/emulated_code.h"
#include "tests/cuda/emulated_runtime.h"
#include "tests/passes/small_training.h"
#include "tools/api/compiling_source.h"

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

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
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

// The gradients of parameters that one device updates are summed for that device.
TEST_F(OnEmulatedGpus, SumsForOneDeviceHaveTheBitsOfSumsForAll) {
  for (const char* name : {"lenet", "recommender"}) {
    const TrainingCase recorded = Case(name);
    for (const char* devices : {"cuda:0,0,0", "cuda:0,1"}) {
      const TrainingRun whole = RunCase(recorded, {.devices = devices, .gradients = false});
      for (const bool graph : {true, false}) {
        const TrainingRun shared =
            RunCase(recorded, {.streams = 2, .devices = devices, .graph = graph, .shards = true, .gradients = false});
        EXPECT_EQ(shared.losses, whole.losses) << name << " " << devices;
        for (const auto& [parameter, value] : whole.parameters)
          EXPECT_TRUE(SameBits(shared.parameters.at(parameter), value)) << name << " " << devices << " " << parameter;
      }
    }
  }
}

// Each device updates its share of the parameters, and broadcasts them: kernels of one GPU, or NCCL between two.
TEST_F(OnEmulatedGpus, SeveralDevicesShareOutTheOptimizersState) {
  for (const char* name : {"clip_accumulate", "batches_accumulate_uneven"}) {
    const TrainingCase recorded = ReadTrainingCase(kRecorded + std::string(name));
    for (const char* devices : {"cuda:0,0,1", "cuda:0,1", "cuda:0,0"}) {
      EXPECT_EQ(Failures(recorded, {.streams = 2, .devices = devices, .shards = true}), "") << name << " " << devices;
      EXPECT_EQ(Failures(recorded, {.devices = devices, .graph = false, .shards = true}), "") << name << " " << devices;
    }
  }
}

TEST_F(OnEmulatedGpus, ModelStagesOnSeparateDevices) {
  const TrainingCase recorded = Case("lenet");
  EXPECT_EQ(Failures(recorded, {.devices = "cuda:0,1", .stages = 2, .place_seed = 3}), "");
  EXPECT_EQ(Failures(recorded, {.devices = "cuda:0,0", .gather_to = 0}), "");
}

// One graph holds all micro-batches of all devices.
TEST_F(OnEmulatedGpus, PipelinesOfMicroBatches) {
  for (const char* name : {"lenet", "housing_mlp", "tiny_gpt"}) {
    const TrainingCase recorded = Case(name);
    EXPECT_EQ(Failures(recorded, {.devices = "cuda:0,1", .stages = 2, .pipeline = 3, .place_seed = 3}), "") << name;
    EXPECT_EQ(Failures(recorded, {.devices = "cuda:0,0,1,1", .graph = false, .stages = 2, .pipeline = 2, .place_seed = 4}), "") << name;
  }
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

// A model whose steps need far more memory than its weights.
class Sizes {
 public:
  Sizes() {
    for (int64_t rows : {1000, 2000, 1000, 500, 2000}) batches_.push_back(BatchOf(rows));
  }

  static Model Net() {
    std::mt19937 random(3);
    return ModelOf("net (float[N, 64] x) => (float[N, 64] y) <" + Weights(random, "w", {64, 64}) + ", " + Weights(random, "v", {64, 64}) +
                   "> { h = MatMul(x, w)\n r = Tanh(h)\n y = MatMul(r, v) }");
  }

  static Batch BatchOf(int64_t rows) {
    std::mt19937 random(static_cast<uint32_t>(rows));
    return {{"x", Random(random, {rows, 64})}, {"t", Random(random, {rows, 64})}};
  }

  // A session whose plan has these batch sizes. If it grows, others are compiled when they arrive.
  std::unique_ptr<Session> Make(int devices, const std::vector<int64_t>& sizes, bool grows) const {
    CompileOptions options = OptionsFor({{.type = "mse", .output = "y", .target = "t"}}, devices, sizes);
    options.recipe.device = DeviceKind::kCuda;
    options.recipe.isa = "sm_90";
    SessionOptions session;
    session.executor.ordinals = {0, 1};
    if (grows) session.source = std::make_shared<CompilingSource>(model_, options);
    return std::make_unique<Session>(std::make_shared<const Plan>(Compile(model_, options)), session);
  }

  std::vector<double> Losses(Session& session) const {
    std::vector<double> losses;
    for (const Batch& batch : batches_) {
      session.Step(Views(batch));
      losses.push_back(ElementAsDouble(session.Fetched("loss"), 0));
    }
    return losses;
  }

 private:
  const Model model_ = Net();
  std::vector<Batch> batches_;
};

int64_t BytesOf(Session& session) {
  const DeviceMemory memory = session.executor().memory()[0];
  return memory.allocated + memory.cached;
}

// There is room for the steps of the largest batch, but not for those of two plans at the same time.
TEST_F(OnEmulatedGpus, LargerBatchesReplaceTheMemoryOfSmallerOnes) {
  const Sizes sizes;
  for (int devices : {1, 2}) {
    emulated::Reset({.devices = 2, .seed = 7});
    std::unique_ptr<Session> session = sizes.Make(devices, {500, 1000, 2000}, false);
    const std::vector<double> wanted = sizes.Losses(*session);
    const int64_t bytes = BytesOf(*session);
    session.reset();
    emulated::Reset({.devices = 2, .memory_bytes = bytes * 5 / 4, .seed = 7});
    session = sizes.Make(devices, {1000}, true);
    const Executor* const executor = &session->executor();
    EXPECT_EQ(sizes.Losses(*session), wanted);
    EXPECT_EQ(&session->executor(), executor) << "it has joined its groups again";
    EXPECT_EQ(BytesOf(*session), bytes);
    // After a refusal the session goes on with the sizes that fit.
    try {
      session->Step(Views(Sizes::BatchOf(4000)));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResource) << error.Describe();
    }
    EXPECT_EQ(sizes.Losses(*session).size(), wanted.size());
    EXPECT_EQ(BytesOf(*session), bytes);
  }
}

// The memory of a step is allocated in several parts. If one of them has none, the next try does not keep what the first one got.
TEST_F(OnEmulatedGpus, AnotherTryForTheMemoryOfStepsNeedsNoMore) {
  const Sizes sizes;
  std::unique_ptr<Session> session = sizes.Make(1, {500, 1000, 2000}, false);
  const int64_t bytes = BytesOf(*session), inputs = session->executor().input_bytes(0);
  session.reset();
  emulated::Reset({.devices = 1, .memory_bytes = bytes * 5 / 4, .seed = 7});
  session = sizes.Make(1, {500, 1000, 2000}, false);
  const std::vector<double> wanted = sizes.Losses(*session);
  session->executor().ReleaseMemory();
  const auto other = CudaPlatform()->Open(0);
  std::byte* const taken = other->Allocate(other->free_bytes() - session->executor().transient_bytes() - inputs / 2);
  try {
    sizes.Losses(*session);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource) << error.Describe();
    EXPECT_NE(error.message().find("for the input arena"), std::string::npos) << error.Describe();
  }
  other->Free(taken);
  EXPECT_EQ(sizes.Losses(*session).size(), wanted.size());
  EXPECT_EQ(BytesOf(*session), bytes);
}

// What the libraries allocate later must fit as well, also with the batch size that is advised.
TEST_F(OnEmulatedGpus, KeepsMemoryForLibraries) {
  const Sizes sizes;
  const int64_t bytes = BytesOf(*sizes.Make(1, {1000}, false));
  emulated::Reset({.devices = 1, .memory_bytes = bytes + (1 << 16), .seed = 7});
  std::string help;
  try {
    sizes.Make(1, {1000}, false);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource) << error.Describe();
    EXPECT_NE(error.message().find("are kept for libraries"), std::string::npos) << error.Describe();
    help = error.help();
  }
  ASSERT_EQ(help.find("use --batch "), 0U) << help;
  const int64_t fits = std::stoll(help.substr(12));
  EXPECT_GT(fits, 700);
  EXPECT_LT(fits, 1000);
  EXPECT_LE(BytesOf(*sizes.Make(1, {fits}, false)), bytes * 15 / 16);
}

// Of a plan that does not fit: how many MiB are kept on the first of these ranks' devices.
int KeptFor(const Plan& plan, RankRange own) {
  try {
    const DeviceMemories memories(plan, {}, own, nullptr);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource) << error.Describe();
    const std::string before = "free, of which ", &words = error.message();
    return std::stoi(words.substr(words.find(before) + before.size()));
  }
  ADD_FAILURE() << "it fits";
  return 0;
}

// NCCL takes memory for each group, and in a job for each direction in which two GPUs of different processes exchange values.
TEST_F(OnEmulatedGpus, KeepsMemoryForCommunicators) {
  CompileOptions options = OptionsFor({{.type = "mse", .output = "y", .target = "t"}}, 2, {int64_t{1} << 26});
  options.recipe.device = DeviceKind::kCuda;
  options.recipe.isa = "sm_90";
  const Plan replicas = Compile(Sizes::Net(), options);
  options.recipe.place = {{.pattern = "v", .stage = 1}};
  const Plan stages = Compile(Sizes::Net(), options);
  ASSERT_EQ(stages.groups.size(), 0U);
  EXPECT_EQ(KeptFor(replicas, {0, 1}), 512 + 128);
  EXPECT_EQ(KeptFor(stages, {0, 2}), 512);
  EXPECT_EQ(KeptFor(stages, {0, 1}), 512 + 2 * 128);
  EXPECT_EQ(KeptFor(stages, {1, 2}), 512 + 2 * 128);
}

TEST_F(OnEmulatedGpus, NamesMemoryIfNcclHasNone) {
  emulated::Reset({.devices = 2, .memory_bytes = 8 << 20, .communicator_bytes = 8 << 20, .seed = 7});
  try {
    RunCase(Case("housing_mlp"), {.devices = "cuda:0,1"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource) << error.Describe();
    EXPECT_NE(error.message().find("no memory left for NCCL"), std::string::npos) << error.Describe();
  }
}

TEST_F(OnEmulatedGpus, RejectsPlansForAnotherArchitecture) {
  try {
    RunCase(Case("housing_mlp"), {.devices = "cuda:0", .isa = "sm_80"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPlan);
    EXPECT_NE(error.message().find("compiled for sm_80"), std::string::npos) << error.Describe();
    EXPECT_NE(error.help().find("--target sm_90"), std::string::npos) << error.Describe();
  }
}

}  // namespace
}  // namespace gradloom
