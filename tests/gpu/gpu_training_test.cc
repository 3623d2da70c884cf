// Recorded training runs on a GPU: on one device, on two logical devices, with and without capture, and over many steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>

#include "compiler/compile.h"
#include "runtime/device/device.h"
#include "tests/conformance/run_case.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr int64_t kSteps = 10000;

CompileOptions SmallNet() {
  CompileOptions options = OptionsFor({{.type = "mse", .output = "y", .target = "t"}}, 1, {32});
  options.recipe.device = DeviceKind::kCuda;
  const DeviceProperties device = CudaPlatform()->devices().at(0);
  options.recipe.isa = "sm_" + std::to_string(device.compute_major * 10 + device.compute_minor);
  options.recipe.fetch_gradients = options.recipe.fetch_outputs = false;
  return options;
}

// An initializer in ONNX text.
std::string Weights(std::mt19937& random, const std::string& type, int count) {
  std::normal_distribution<float> normal(0, 0.1F);
  std::string text = type + " = {";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + std::to_string(normal(random));
  return text + "}";
}

Model SmallModel() {
  std::mt19937 random(2);
  return ModelOf("small (float[N,64] x) => (float[N,8] y) <" + Weights(random, "float[64,64] a", 64 * 64) + ", " +
                 Weights(random, "float[64] b", 64) + ", " + Weights(random, "float[64,8] c", 64 * 8) +
                 "> {\n  h = MatMul(x, a)\n  g = Add(h, b)\n  r = Relu(g)\n  y = MatMul(r, c)\n}");
}

TEST(Gpu, TenThousandStepsLeakNoMemory) {
  Session session(std::make_shared<const Plan>(Compile(SmallModel(), SmallNet())), {.executor = {.ordinals = {0}}});
  std::mt19937 random(1);
  const Batch batch = {{"x", Random(random, {32, 64})}, {"t", Random(random, {32, 8})}};
  const Feeds feeds = Views(batch);
  for (int step = 0; step < 100; ++step) session.Step(feeds);
  const int64_t free = session.executor().memory()[0].free;
  for (int64_t step = 0; step < kSteps; ++step) session.Step(feeds);
  EXPECT_EQ(session.executor().memory()[0].free, free);
}

TEST(Gpu, ReturnsReleasedMemoryToTheDriver) {
  Session session(std::make_shared<const Plan>(Compile(SmallModel(), SmallNet())), {.executor = {.ordinals = {0}}});
  std::mt19937 random(1);
  const Batch batch = {{"x", Random(random, {32, 64})}, {"t", Random(random, {32, 8})}};
  session.Step(Views(batch));
  const DeviceMemory before = session.executor().memory()[0];
  session.executor().ReleaseMemory();
  const DeviceMemory after = session.executor().memory()[0];
  EXPECT_EQ(after.cached, 0);
  EXPECT_GE(after.free, before.free);
  session.Step(Views(batch));
}

}  // namespace
}  // namespace gradloom
