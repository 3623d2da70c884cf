// Shows what events are for: a plan with several streams gives wrong results when its waits are removed, and never does as it was compiled.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "runtime/exec/executor.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr int kRuns = 20;

// A normally distributed initializer in ONNX text.
std::string Weights(std::mt19937& random, const std::string& name) {
  std::normal_distribution<float> normal(0, 0.1F);
  std::string text = "float[64,64] " + name + " = {";
  for (int i = 0; i < 64 * 64; ++i) text += (i == 0 ? "" : ", ") + std::to_string(normal(random));
  return text + "}";
}

// Adds several independent chains: each chain can have its own stream, and every addition has to wait.
Model Chains(std::mt19937& random) {
  std::string text = "chains (float[N,64] x) => (float[N,64] y) <" + Weights(random, "w0") + ", " + Weights(random, "w1") + ", " +
                     Weights(random, "w2") + "> {\n";
  for (int chain = 0; chain < 3; ++chain) {
    std::string last = "x";
    for (int link = 0; link < 4; ++link) {
      const std::string name = "c" + std::to_string(chain) + "_" + std::to_string(link);
      text += "  " + name + "m = MatMul(" + last + ", w" + std::to_string(chain) + ")\n  " + name + " = Tanh(" + name + "m)\n";
      last = name;
    }
  }
  return ModelOf(text + "  s = Add(c0_3, c1_3)\n  y = Add(s, c2_3)\n}");
}

// The fetches of a run, bit for bit.
std::string Outcome(const std::shared_ptr<const Plan>& plan, const Batch& batch, uint64_t chaos) {
  const std::unique_ptr<Executor> executor = Executor::Make(plan, {.ordinals = {0}});
  executor->SetChaos(chaos);
  std::vector<TensorView> feeds;
  for (const Feed& feed : plan->entries[0].feeds) feeds.push_back(batch.at(feed.name).view());
  std::string bits;
  for (int step = 1; step <= 2; ++step) {
    executor->Run(0, feeds, {.lr = 0.01F, .step = step, .batch = step - 1});
    for (size_t f = 0; f < plan->entries[0].fetches.size(); ++f) {
      const TensorView view = executor->Fetched(0, static_cast<int>(f));
      bits.append(static_cast<const char*>(view.data), static_cast<size_t>(view.bytes()));
    }
  }
  return bits;
}

TEST(StreamHazard, PlanIsCorrectOnlyWithItsEvents) {
  std::mt19937 random(3);
  const Batch batch = {{"x", Random(random, {16, 64})}, {"t", Random(random, {16, 64})}};
  CompileOptions options = OptionsFor({{.type = "mse", .output = "y", .target = "t"}}, 1, {16});
  options.recipe.device = DeviceKind::kCuda;
  options.recipe.isa = "sm_90";
  options.recipe.streams = 3;
  options.control.disabled = {"fuse_pointwise"};
  Plan plan = Compile(Chains(random), options);
  Plan broken = plan;
  size_t taken = 0;
  for (size_t p = 0; p < broken.programs.size(); ++p) {
    taken += std::erase_if(broken.programs.Mutable(p).instructions, [](const Instruction& i) { return i.kind == InstructionKind::kWait; });
  }
  ASSERT_GT(taken, 0u);
  const auto sound = std::make_shared<const Plan>(std::move(plan)), unsound = std::make_shared<const Plan>(std::move(broken));
  const std::string right = Outcome(sound, batch, 1);
  int sound_wrong = 0, unsound_wrong = 0;
  for (int run = 0; run < kRuns; ++run) {
    sound_wrong += Outcome(sound, batch, static_cast<uint64_t>(run)) != right;
    unsound_wrong += Outcome(unsound, batch, static_cast<uint64_t>(run)) != right;
  }
  std::printf("%zu waits taken out: %d of %d runs wrong; with them %d\n", taken, unsound_wrong, kRuns, sound_wrong);
  EXPECT_EQ(sound_wrong, 0);
  EXPECT_GT(unsound_wrong, 0);
}

}  // namespace
}  // namespace gradloom
