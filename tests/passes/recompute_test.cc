// A plan that recomputes activations computes the same bits in less memory.
#include "compiler/passes/memory/recompute.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/exec/host_executor.h"
#include "runtime/plan/memory_report.h"
#include "tests/conformance/training_case.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

struct Outcome {
  std::string bits;  // of all fetches of two steps, and of the final state
  int64_t total_bytes = 0, transient_bytes = 0;
  Recomputed recomputed;
};

Outcome TrainWithin(const TrainingCase& recorded, int64_t limit, int devices, int streams) {
  CompileOptions options;
  options.recipe = recorded.recipe;
  options.recipe.memory_limit = limit;
  options.recipe.devices = devices;
  options.recipe.streams = streams;
  options.recipe.fetch_gradients = true;
  options.entries.push_back({EntryKind::kStep, recorded.batch_sizes.front()});
  CompileReport report;
  const auto plan = std::make_shared<const Plan>(Compile(Model::Load(recorded.model_path), options, &report));
  Outcome outcome{.total_bytes = ReportMemory(*plan, 0).fullest().total_bytes(), .recomputed = report.recomputed};
  HostExecutor executor(plan);
  outcome.transient_bytes = executor.transient_bytes();
  executor.SetChaos(3);
  const auto keep = [&](const TensorView& view) {
    outcome.bits.append(static_cast<const char*>(view.data), static_cast<size_t>(view.bytes()));
  };
  for (int step = 0; step < 2; ++step) {
    std::vector<TensorView> feeds;
    for (const Feed& feed : plan->entries[0].feeds) feeds.push_back(recorded.batches.at(feed.name + std::to_string(step)).view());
    executor.Run(0, feeds, {.lr = 0.01F, .step = step + 1, .batch = step, .seed = 7});
    for (size_t f = 0; f < plan->entries[0].fetches.size(); ++f) keep(executor.Fetched(0, static_cast<int>(f)));
  }
  for (const StateTensor& state : plan->state) keep(executor.state().Get(state).view());
  return outcome;
}

class Cases : public testing::TestWithParam<const char*> {};

TEST_P(Cases, KeepsBitsInLessMemory) {
  const TrainingCase recorded = ReadTrainingCase(std::string("tests/conformance/cases/") + GetParam());
  for (const auto& [devices, streams] : {std::pair(1, 1), std::pair(2, 2)}) {
    const Outcome all = TrainWithin(recorded, 0, devices, streams);
    EXPECT_EQ(all.recomputed.values, 0);
    // What remains with a limit that cannot be met.
    const Outcome least = TrainWithin(recorded, 1, devices, streams);
    // Nothing is recomputed if it saves no memory.
    EXPECT_EQ(least.recomputed.values > 0, least.transient_bytes < all.transient_bytes);
    EXPECT_LE(least.transient_bytes, all.transient_bytes);
    if (devices == 1) {
      EXPECT_GT(least.recomputed.values, 0);
      EXPECT_GT(least.recomputed.seconds, 0);
    }
    EXPECT_EQ(least.bits == all.bits, true) << GetParam() << " on " << devices << " devices";
    // With a limit in between, no more is recomputed than necessary.
    const int64_t limit = (all.total_bytes + least.total_bytes) / 2;
    const Outcome some = TrainWithin(recorded, limit, devices, streams);
    EXPECT_LE(some.total_bytes, limit);
    EXPECT_EQ(some.bits == all.bits, true) << GetParam() << " on " << devices << " devices";
    std::printf("%s, %d devices: arena %lld bytes, %lld with %d values made again\n", GetParam(), devices,
                static_cast<long long>(all.transient_bytes), static_cast<long long>(least.transient_bytes), least.recomputed.values);
  }
}

// Fusion makes one launch of the pointwise operators of a GELU: their result costs less than that of the product before them.
TEST(Recompute, CountsFusedOperatorsAsOneLaunch) {
  constexpr int64_t kRows = 16384, kWidth = 128;
  std::mt19937 random(5);
  std::string weights = Weights(random, "u", {kWidth, 2}), layers;
  for (int i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i), from = i == 0 ? "x" : "y" + std::to_string(i - 1);
    weights += ",\n" + Weights(random, "w" + n, {kWidth, kWidth});
    layers += "h" + n + " = MatMul (" + from + ", w" + n + ")\n d" + n + " = Div (h" + n + ", root)\n e" + n + " = Erf (d" + n + ")\n p" +
              n + " = Add (e" + n + ", one)\n m" + n + " = Mul (h" + n + ", p" + n + ")\n y" + n + " = Mul (m" + n + ", half)\n";
  }
  const Model model = ModelOf("g (float[N, 128] x) => (float[N, 2] z)\n<" + weights +
                              ", float half = {0.5}, float one = {1}, float root = {1.4142135}>\n{\n" + layers + "z = MatMul (y3, u)\n}\n");
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {kRows});
  options.recipe.device = DeviceKind::kCuda;
  options.recipe.isa = "sm_90";
  options.recipe.fetch_gradients = options.recipe.fetch_outputs = false;
  const Plan all = Compile(model, options);
  options.recipe.memory_limit = ReportMemory(all, 0).fullest().total_bytes() - kRows * kWidth;
  CompileReport report;
  const Plan less = Compile(model, options, &report);
  EXPECT_GT(report.recomputed.values, 0);
  EXPECT_LE(ReportMemory(less, 0).fullest().total_bytes(), options.recipe.memory_limit);
  for (const char* product : {"MatMul", "Gemm"}) EXPECT_EQ(Count(less, product), Count(all, product)) << product;
}

// Residual blocks with normalization and dropout, as deep as given.
Model Blocks(int depth) {
  constexpr int64_t kWidth = 48;
  std::mt19937 random(7);
  std::string weights, layers, from = "x";
  const auto name = [](const char* stem, int i) { return stem + std::to_string(i); };
  for (int i = 0; i < depth; ++i) {
    weights += Weights(random, name("w", i), {kWidth, 2 * kWidth}, 0.2F) + ",\n" +
               Weights(random, name("v", i), {2 * kWidth, kWidth}, 0.2F) + ",\n" + Weights(random, name("g", i), {kWidth}) + ",\n";
    layers += name("n", i) + " = LayerNormalization <axis = -1> (" + from + ", " + name("g", i) + ")\n " + name("h", i) + " = MatMul (" +
              name("n", i) + ", " + name("w", i) + ")\n " + name("a", i) + " = Tanh (" + name("h", i) + ")\n " + name("d", i) +
              " = Dropout (" + name("a", i) + ", rate, on)\n " + name("m", i) + " = MatMul (" + name("d", i) + ", " + name("v", i) +
              ")\n " + name("y", i) + " = Add (" + from + ", " + name("m", i) + ")\n ";
    from = name("y", i);
  }
  return ModelOf("g (float[N, 48] x) => (float[N, 3] z)\n<" + weights + Weights(random, "head", {kWidth, 3}) +
                 ", float rate = {0.1}, bool on = {1}>\n{\n" + layers + "z = MatMul (" + from + ", head)\n}\n");
}

int64_t TransientBytes(const Plan& plan) { return ReportMemory(plan, 0).fullest().transient_bytes; }

// Segments of the forward pass run again: memory grows with the square root of the depth, at most one forward pass is added, and no bit
// changes.
TEST(Recompute, DeepNetworksNeedLittleMemory) {
  std::map<int, int64_t> full;
  for (const int depth : {16, 64}) {
    SCOPED_TRACE("depth " + std::to_string(depth));
    const Model model = Blocks(depth);
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {64});
    options.recipe.fetch_gradients = options.recipe.fetch_outputs = false;
    const Plan all = Compile(model, options);
    CompileOptions less = options;
    less.recipe.recompute = RecomputeMode::kFull;
    const Plan least = Compile(model, less);
    full[depth] = TransientBytes(least);
    EXPECT_LE(full[depth] * (depth == 16 ? 3 : 7), TransientBytes(all));
    EXPECT_LE(Count(least, "MatMul") - Count(all, "MatMul"), 2 * depth);

    // A limit in between: no more runs again than necessary.
    less.recipe.recompute = RecomputeMode::kAuto;
    less.recipe.memory_limit = (ReportMemory(all, 0).fullest().total_bytes() + ReportMemory(least, 0).fullest().total_bytes()) / 2;
    const Plan some = Compile(model, less);
    EXPECT_LE(ReportMemory(some, 0).fullest().total_bytes(), less.recipe.memory_limit);
    EXPECT_GE(ReportMemory(some, 0).fullest().total_bytes(), less.recipe.memory_limit * 8 / 10);
    EXPECT_LT(Count(some, "MatMul"), Count(least, "MatMul"));
  }
  EXPECT_LE(full[64], full[16] * 3);
}

TEST(Recompute, SegmentsKeepBits) {
  const Model model = Blocks(12);
  std::mt19937 random(3);
  std::vector<Batch> batches;
  for (int i = 0; i < 3; ++i) batches.push_back({{"x", Random(random, {300, 48})}, {"target", Classes(random, 300, 3)}});
  for (const int devices : {1, 3}) {
    for (const int streams : {1, 3}) {
      SCOPED_TRACE(std::to_string(devices) + " devices, " + std::to_string(streams) + " streams");
      CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {300});
      options.recipe.fetch_gradients = options.recipe.fetch_outputs = false;  // these would need the memory
      options.recipe.streams = streams;
      const auto want = Train(model, options, batches);
      const int64_t products = Count(Compile(model, options), "MatMul");
      options.recipe.recompute = RecomputeMode::kFull;
      const int64_t again = Count(Compile(model, options), "MatMul");
      if (streams == 1) {
        EXPECT_GT(again, products);
      }
      ExpectSameBits(want, Train(model, options, batches, 5));
    }
  }
}

// Computed indices are checked before devices have synchronized. If they were computed again, which is worth it for two samples and not for
// one, a device could refuse the batch after others have added to their gradients.
TEST(Recompute, KeepsIndicesThatMayBeRefused) {
  std::mt19937 random(3);
  const Model model =
      ModelOf("g (float[N, 12, 6] x) => (float[N, 3] z)\n<" + Weights(random, "w", {6, 6}) + ", " + Weights(random, "table", {6, 4}) +
              ", " + Weights(random, "v", {4, 4}) + ", " + Weights(random, "head", {48, 3}) + R"(, float most = {5.99}>
{
  h = MatMul (x, w) s = Sigmoid (h) c = Mul (s, most) at = Cast <to = 7> (c)
  rows = Gather <axis = 0> (table, at) m = ReduceMean <axes = [2], keepdims = 0> (rows)
  k = MatMul (m, v) q = Softmax <axis = -1> (k) f = Flatten (q) z = MatMul (f, head)
}
)");
  for (const int devices : {1, 3}) {
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {5});
    options.recipe.fetch_gradients = options.recipe.fetch_outputs = false;
    options.recipe.accumulate = 2;
    options.recipe.recompute = RecomputeMode::kFull;
    EXPECT_NO_THROW(Compile(model, options)) << devices;
  }
}

INSTANTIATE_TEST_SUITE_P(Recompute, Cases, testing::Values("unet_small", "tiny_gpt", "mobilenet_v2_tiny", "resnet_cifar"));

}  // namespace
}  // namespace gradloom
