// Four devices with four streams each: every bit of every step is the same, whatever the timing.
//
// GRADLOOM_CHAOS_SEEDS: how many seeds of random delays to try (default 20).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/exec/host_executor.h"
#include "tests/conformance/training_case.h"
#include "tests/exec/step_fetches.h"

namespace gradloom {
namespace {

int Seeds() {
  const char* given = std::getenv("GRADLOOM_CHAOS_SEEDS");
  return given != nullptr ? std::atoi(given) : 20;
}

class Chaos : public testing::TestWithParam<const char*> {};

// The fetches of three steps from the initial state, and the final state of every device.
std::string Outcome(HostExecutor& executor, const TrainingCase& recorded, const std::vector<std::string>& initial) {
  for (size_t rank = 0; rank < initial.size(); ++rank) {
    std::memcpy(executor.state().at(static_cast<int>(rank), 0), initial[rank].data(), initial[rank].size());
  }
  std::string bytes;
  for (int step = 0; step < 3; ++step) AddFetchesOfStep(executor, recorded, step, bytes);
  for (size_t rank = 0; rank < initial.size(); ++rank) {
    bytes.append(reinterpret_cast<const char*>(executor.state().at(static_cast<int>(rank), 0)), initial[rank].size());
  }
  return bytes;
}

TEST_P(Chaos, ChangesNoBit) {
  const TrainingCase recorded = ReadTrainingCase(std::string("tests/conformance/cases/") + GetParam());
  CompileOptions options;
  options.recipe = recorded.recipe;
  options.recipe.devices = 4;
  options.recipe.streams = 4;
  options.recipe.sync_bn = true;
  options.recipe.bucket_bytes = 4096;
  options.entries.push_back({EntryKind::kStep, recorded.batch_sizes.front()});
  HostExecutor executor(std::make_shared<const Plan>(Compile(Model::Load(recorded.model_path), options)));
  std::vector<std::string> initial;
  for (int rank = 0; rank < 4; ++rank) {
    initial.emplace_back(reinterpret_cast<const char*>(executor.state().at(rank, 0)),
                         static_cast<size_t>(executor.state().bytes(static_cast<size_t>(rank))));
  }
  const std::string undisturbed = Outcome(executor, recorded, initial);
  const int seeds = Seeds();
  for (int seed = 1; seed <= seeds; ++seed) {
    executor.SetChaos(static_cast<uint64_t>(seed));
    ASSERT_EQ(Outcome(executor, recorded, initial) == undisturbed, true) << GetParam() << ", seed " << seed;
  }
  std::printf("%s: %d seeds\n", GetParam(), seeds);
}

INSTANTIATE_TEST_SUITE_P(Cases, Chaos, testing::Values("housing_mlp", "lenet", "lstm_classifier", "recommender", "tiny_gpt", "unet_small"));

}  // namespace
}  // namespace gradloom
