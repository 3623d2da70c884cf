// On a GPU: steps that kernels refuse change no state, and the host learns of the refusal.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "tests/exec/failed_steps.h"

namespace gradloom {
namespace {

using Change = void (*)(CompileOptions&);

// Runs with single launches, with captured graphs, and with random delays.
void ExpectUnchanged(
    FailedStepCase c, const std::vector<int>& ordinals, Change change = [](CompileOptions&) {}) {
  const DeviceProperties device = CudaPlatform()->devices().at(0);
  c.devices = static_cast<int>(ordinals.size());
  c.change = [change, isa = "sm_" + std::to_string(device.compute_major * 10 + device.compute_minor)](CompileOptions& options) {
    options.recipe.device = DeviceKind::kCuda;
    options.recipe.isa = isa;
    change(options);
  };
  for (const bool graph : {false, true}) {
    ExecutorOptions options;
    options.ordinals = ordinals;
    options.graph = graph;
    ExpectFailedStepsChangeNothing(c, options, false);
    if (!graph) ExpectFailedStepsChangeNothing(c, options, true);
  }
}

TEST(FailedStepOnAGpu, ChangesNothing) {
  ExpectUnchanged({.name = "one stream"}, {0});
  ExpectUnchanged({.name = "four streams", .streams = 4}, {0});
  ExpectUnchanged({.name = "16 bits"}, {0}, [](CompileOptions& o) { o.recipe.precision = Precision::kBfloat16; });
  ExpectUnchanged({.name = "a scaled loss"}, {0}, [](CompileOptions& o) {
    o.recipe.precision = Precision::kFloat16;
    o.recipe.loss_scale = {.initial = 256, .growth_interval = 2};
  });
}

TEST(FailedStepOnAGpu, ChangesNothingBehindABranchAndALoop) {
  ExpectUnchanged({.name = "a branch and a loop", .streams = 2, .decides = true}, {0});
}

TEST(FailedStepOnAGpu, ChangesNothingOnTwoLogicalDevices) {
  ExpectUnchanged({.name = "two devices", .streams = 2}, {0, 0});
  ExpectUnchanged({.name = "a device without samples", .samples = 1}, {0, 0});
}

// Through the other GPU's memory, or a word in host memory.
TEST(FailedStepOnAGpu, ChangesNothingOnTwoGpus) {
  const std::vector<DeviceProperties> devices = CudaPlatform()->devices();
  if (devices.size() < 2) GTEST_SKIP() << "there is one GPU";
  ExpectUnchanged({.name = "two GPUs", .streams = 2}, {0, 1});
  // Devices that share a GPU must read the memory of the others.
  const std::vector<int>& peers = devices[0].peers;
  if (std::find(peers.begin(), peers.end(), 1) != peers.end())
    ExpectUnchanged({.name = "two GPUs and a logical device", .streams = 2}, {0, 0, 1});
}

}  // namespace
}  // namespace gradloom
