// Four devices with four streams each: every bit of every step is the same, whatever the timing.
//
// GRADLOOM_CHAOS_SEEDS: how many seeds of random delays to try (default 20).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/exec/host_executor.h"
#include "tests/conformance/training_case.h"
#include "tests/exec/step_fetches.h"
#include "tests/exec/thread_sleeps.h"
#include "tests/passes/small_training.h"

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

// A loop over samples whose number of iterations is that of a fed count, and a branch within it.
constexpr char kLoop[] = R"(
g (float[N, 4] x, int64 count) => (float[N, 4] z)
<float[4, 4] w = {0.1, -0.2, 0.5, 0.1, 0.3, 0.2, -0.1, 0.1, 0.7, -0.4, 0.2, 0.9, 0.1, -0.6, 0.8, -0.3}, float[4] b = {0.4, -0.9, 0.6, 1.2},
 int64 most = {64}, int64 three = {3}, bool yes = {1}>
{
  few = Min (count, most)
  h = Loop (few, yes, x) <
    body = body_graph (int64 i, bool going, float[N, 4] c) => (bool again, float[N, 4] next) {
      again = Identity (going)
      early = Less (i, three)
      p = MatMul (c, w)
      next = If (early) <
        then_branch = then_graph () => (float[N, 4] n) { q = Add (p, b) n = Tanh (q) },
        else_branch = else_graph () => (float[N, 4] n) { n = Tanh (p) }
      >
    }
  >
  z = MatMul (h, w)
}
)";

TEST(ChaosInBodies, ChangesNoBit) {
  std::mt19937 random(4);
  const Model model = ModelOf(kLoop);
  CompileOptions options = OptionsFor({{.type = "mse", .output = "z", .target = "y"}}, 4, {8});
  options.recipe.streams = 4;
  options.recipe.bucket_bytes = 64;
  std::vector<Batch> batches;
  for (const int64_t count : {5, 2, 9}) {
    batches.push_back({{"x", Random(random, {8, 4})}, {"y", Random(random, {8, 4})}, {"count", Tensor::Scalar<int64_t>(count)}});
  }
  const auto undisturbed = Train(model, options, batches);
  for (int seed = 1; seed <= Seeds(); ++seed) ExpectSameBits(undisturbed, Train(model, options, batches, static_cast<uint64_t>(seed)));
}

// With one thread, nothing but a delay makes the step sleep.
TEST(ChaosInBodies, DelaysTheirInstructions) {
  std::mt19937 random(4);
  CompileOptions options = OptionsFor({{.type = "mse", .output = "z", .target = "y"}}, 1, {8});
  options.recipe.threads = options.recipe.streams = 1;
  Session session(std::make_shared<const Plan>(Compile(ModelOf(kLoop), options)));
  const Batch batch{{"x", Random(random, {8, 4})}, {"y", Random(random, {8, 4})}, {"count", Tensor::Scalar<int64_t>(64)}};
  const auto sleeps = [&] {
    session.Step(Views(batch));
    const int64_t before = ThreadSleeps();
    for (int step = 0; step < 8; ++step) session.Step(Views(batch));
    return ThreadSleeps() - before;
  };
  const auto instructions = static_cast<int64_t>(session.plan().programs[0].instructions.size());
  EXPECT_LT(sleeps(), 8);
  session.executor().SetChaos(1);
  // About one in 32 of the instructions sleeps, and all but a few are in bodies.
  const int64_t found = sleeps();
  EXPECT_GT(found, 8 * instructions / 8) << instructions << " instructions outside of bodies";
  std::printf("%lld sleeps, %lld instructions outside of bodies\n", static_cast<long long>(found), static_cast<long long>(instructions));
}

INSTANTIATE_TEST_SUITE_P(Cases, Chaos, testing::Values("housing_mlp", "lenet", "lstm_classifier", "recommender", "tiny_gpt", "unet_small"));

}  // namespace
}  // namespace gradloom
