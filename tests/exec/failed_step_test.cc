// A step that fails because of its feeds changes no state that lives between steps, on one device or several, whatever the timing.
#include "gtest/gtest.h"
#include "tests/exec/failed_steps.h"

namespace gradloom {
namespace {

void KeepParts(CompileOptions& options) {
  options.recipe.accumulate = 2;
  options.recipe.fetch_gradients = false;
}

void ShareOut(CompileOptions& options) {
  options.recipe.shard_optimizer = true;
  options.recipe.fetch_gradients = false;
}

const FailedStepCase kCases[] = {
    {.name = "one device"},
    {.name = "four streams", .streams = 4},
    {.name = "updates where they are written", .change = [](CompileOptions& o) { o.control.disabled = {"order_nodes"}; }},
    {.name = "two devices", .devices = 2},
    {.name = "three devices of two streams, unlike shares", .devices = 3, .streams = 2},
    {.name = "a device without samples", .devices = 3, .samples = 2},
    {.name = "statistics of all", .devices = 2, .change = [](CompileOptions& o) { o.recipe.sync_bn = true; }},
    {.name = "states of the optimizer on one device each",
     .devices = 3,
     .change = [](CompileOptions& o) { o.recipe.shard_optimizer = true; }},
    {.name = "states and gradients on one device each", .devices = 3, .change = ShareOut},
    {.name = "states and gradients on one device each, two streams, a device without samples",
     .devices = 3,
     .streams = 2,
     .samples = 2,
     .change = ShareOut},
    {.name = "states on one device each behind a branch and a loop", .devices = 2, .change = ShareOut, .decides = true},
    {.name = "a scaled loss",
     .change =
         [](CompileOptions& o) {
           o.recipe.precision = Precision::kFloat16;
           o.recipe.loss_scale = {.initial = 256, .growth_interval = 2};
         }},
    {.name = "two batches an update",
     .devices = 2,
     .change =
         [](CompileOptions& o) {
           o.recipe.accumulate = 2;
           for (EntryRequest& entry : o.entries) entry.kind = EntryKind::kAccumulate;
           o.entries.push_back({EntryKind::kUpdate, 0});
         }},
    // Each device keeps its own part of the gradients, so the all-reduce of the loss is their only collective.
    {.name = "parts of two batches", .devices = 2, .change = KeepParts},
    {.name = "parts of two batches, three devices, two streams", .devices = 3, .streams = 2, .change = KeepParts},
    // A node after the loss may refuse the batch.
    {.name = "parts of two batches behind a branch and a loop", .devices = 2, .change = KeepParts, .decides = true},
    {.name = "parts of two batches, two copies in two parts each",
     .devices = 4,
     .change =
         [](CompileOptions& o) {
           KeepParts(o);
           o.recipe.place = {{.pattern = "v", .stage = 1}, {.pattern = "late", .stage = 1}};
         }},
    {.name = "a branch and a loop", .decides = true},
    {.name = "a branch and a loop on three streams", .streams = 3, .decides = true}};

TEST(FailedStep, ChangesNothing) {
  for (const FailedStepCase& c : kCases) ExpectFailedStepsChangeNothing(c, {}, true);
}

}  // namespace
}  // namespace gradloom
