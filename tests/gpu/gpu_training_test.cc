// Recorded training runs on a GPU: on one device, on two logical devices, with and without capture, and over many steps; and NCCL.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/device/cuda/nccl_group.h"
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

// NCCL with one member, which is all that one GPU can have: its calls, alone and in a graph that runs twice.
void RunCollectives(Device& device, DeviceGroup& group) {
  constexpr int64_t kCount = 1000, kBytes = kCount * 4;
  const auto deleted = [&](std::byte* memory) { device.Free(memory); };
  const std::unique_ptr<std::byte, decltype(deleted)> from(device.Allocate(kBytes), deleted), to(device.Allocate(kBytes), deleted);
  std::mt19937 random(1);
  const Tensor data = Random(random, {kCount});
  Tensor result(DType::kFloat32, {kCount});
  void* const stream = device.NewStream();
  device.Copy(from.get(), data.data(), kBytes, stream);
  const std::vector<DeviceGroup::Operand> operands = {{DType::kFloat32, from.get(), to.get(), kBytes, kBytes}};
  const auto check = [&](const char* what, auto&& enqueue) {
    SCOPED_TRACE(what);
    for (const bool captured : {false, true}) {
      device.Zero(to.get(), kBytes, stream);
      if (captured) {
        device.BeginCapture(stream);
        enqueue();
        const std::unique_ptr<DeviceGraph> graph = device.EndCapture(stream);
        graph->Launch(stream);
        graph->Launch(stream);
        device.Synchronize(stream);
      } else {
        enqueue();
      }
      device.Copy(result.data(), to.get(), kBytes, stream);
      device.Synchronize(stream);
      group.Check();
      EXPECT_EQ(std::memcmp(result.data(), data.data(), kBytes), 0) << captured;
    }
  };
  const std::vector<void*> streams = {stream};
  const std::span<const std::vector<DeviceGroup::Operand>> of(&operands, 1);
  check("all-reduce", [&] { group.AllReduceSum(of, streams); });
  check("broadcast", [&] { group.Broadcast(0, of, streams); });
  check("reduce-scatter", [&] { group.ReduceScatterSum(of, streams); });
  check("reduce", [&] { group.ReduceSum(of, streams); });
  check("all-gather", [&] { group.AllGather(of, streams); });
  device.DeleteStream(stream);
}

TEST(Gpu, NcclWithOneMember) {
  const std::unique_ptr<Device> device = CudaPlatform()->Open(0);
  Device* const members[] = {device.get()};
  RunCollectives(*device, *cuda::NewNcclGroup(members));
}

TEST(Gpu, NcclWithOneMemberAsInAJob) {
  const std::unique_ptr<Device> device = CudaPlatform()->Open(0);
  Device* const members[] = {device.get()};
  RunCollectives(
      *device,
      *cuda::JoinNcclGroup(
          members, {.id = cuda::NewNcclId(), .size = 1, .positions = {0}, .waiting = [](std::chrono::steady_clock::time_point&) {}}));
}

}  // namespace
}  // namespace gradloom
