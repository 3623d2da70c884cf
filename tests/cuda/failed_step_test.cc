// If kernels refuse a batch, the state that lives between steps stays unchanged, although the step runs to its end.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/cuda/emulated_runtime.h"
#include "tests/exec/failed_steps.h"

namespace gradloom {
namespace {

using Change = void (*)(CompileOptions&);

// Runs on these physical devices, with single launches and with captured graphs, and in several orders of streams.
void ExpectUnchanged(
    FailedStepCase c, const std::vector<int>& ordinals, Change change = [](CompileOptions&) {}, bool peers = true) {
  c.devices = static_cast<int>(ordinals.size());
  c.change = [change](CompileOptions& options) {
    options.recipe.device = DeviceKind::kCuda;
    options.recipe.isa = "sm_90";
    change(options);
  };
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    emulated::Reset({.devices = 2, .seed = seed, .peers = peers});
    ExecutorOptions options;
    options.ordinals = ordinals;
    options.graph = seed == 1;
    ExpectFailedStepsChangeNothing(c, options, false);
  }
  // Aborts if anything is left over.
  emulated::Reset({});
}

void Optimizer(CompileOptions& options, const char* type) { options.recipe.optimizer.type = type; }

TEST(FailedStepOnGpus, ChangesNothing) {
  ExpectUnchanged({.name = "one device"}, {0});
  ExpectUnchanged({.name = "four streams", .streams = 4}, {0});
  ExpectUnchanged({.name = "a branch and a loop", .streams = 2, .decides = true}, {0});
}

TEST(FailedStepOnGpus, ChangesNothingForAnyKindOfState) {
  ExpectUnchanged({.name = "an update each"}, {0}, [](CompileOptions& o) { o.control.disabled = {"join_updates"}; });
  ExpectUnchanged({.name = "norms"}, {0}, [](CompileOptions& o) { Optimizer(o, "lamb"); });
  ExpectUnchanged({.name = "no state of the optimizer"}, {0}, [](CompileOptions& o) { Optimizer(o, "sgd"); });
  ExpectUnchanged({.name = "a scaled loss"}, {0}, [](CompileOptions& o) {
    o.recipe.precision = Precision::kFloat16;
    o.recipe.loss_scale = {.initial = 256, .growth_interval = 2};
  });
}

TEST(FailedStepOnGpus, ChangesNothingOnSeveralDevices) {
  ExpectUnchanged({.name = "on one GPU"}, {0, 0});
  ExpectUnchanged({.name = "unlike shares", .streams = 2}, {0, 0, 1});
  ExpectUnchanged({.name = "a device without samples", .samples = 2}, {0, 0, 1});
  ExpectUnchanged({.name = "statistics of all"}, {0, 1}, [](CompileOptions& o) { o.recipe.sync_bn = true; });
  // The devices share the fault through a word in host memory.
  ExpectUnchanged(
      {.name = "that cannot read each other"}, {0, 1}, [](CompileOptions&) {}, false);
  ExpectUnchanged({.name = "two batches an update"}, {0, 1}, [](CompileOptions& o) {
    o.recipe.accumulate = 2;
    for (EntryRequest& entry : o.entries) entry.kind = EntryKind::kAccumulate;
    o.entries.push_back({EntryKind::kUpdate, 0});
  });
}

TEST(FailedStepOnGpus, ChangesNoAccumulatedGradients) {
  const auto parts = [](CompileOptions& o) {
    o.recipe.accumulate = 2;
    o.recipe.fetch_gradients = false;
  };
  ExpectUnchanged({.name = "parts of two batches", .streams = 2}, {0, 0, 1}, parts);
  ExpectUnchanged({.name = "parts of two batches behind a branch and a loop", .decides = true}, {0, 1}, parts);
}

}  // namespace
}  // namespace gradloom
