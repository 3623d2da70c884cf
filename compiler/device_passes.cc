#include "compiler/device_passes.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

namespace gradloom {

void RunDevicePasses(PassContext& context, const PassControl& control) {
  constexpr int kMaxRounds = 4;
  const bool full = context.recipe.recompute == RecomputeMode::kFull;
  const int64_t limit = context.recipe.recompute == RecomputeMode::kAuto ? context.recipe.memory_limit : 0;
  const std::unique_ptr<Graph> original = limit > 0 || full ? context.graph.Clone() : nullptr;
  const auto names = context.fetch_names;
  RunStage(context, control, PassStage::kDevice);
  // Without the last passes it is not known how much memory a step needs.
  if ((limit == 0 && !full) || !control.stop_after.empty()) return;
  const auto run = [&](int64_t bytes) {
    context.recompute_bytes = bytes;
    context.recomputed = {};
    context.graph = *original->Clone();
    context.fetch_names = names;
    context.scheduled = {};
    RunStage(context, control, PassStage::kDevice);
  };
  const Place& place = context.plan.places[static_cast<size_t>(context.place)];
  std::pair<int64_t, int64_t> best{context.scheduled.transient_bytes, 0};  // bytes of the arena, and how much is recomputed
  if (full) {
    run(std::numeric_limits<int64_t>::max());
    best = std::min(best, {context.scheduled.transient_bytes, context.recompute_bytes});
  }
  for (int round = 0; round < kMaxRounds && !full; ++round) {
    const int64_t over =
        place.state_bytes + place.constants_bytes + context.scheduled.transient_bytes + 2 * context.scheduled.input_bytes - limit;
    if (over <= 0 || (round > 0 && context.recomputed.bytes < context.recompute_bytes)) break;
    run(context.recompute_bytes + over + over / 4);
    best = std::min(best, {context.scheduled.transient_bytes, context.recompute_bytes});
  }
  if (best.second != context.recompute_bytes) run(best.second);
}

}  // namespace gradloom
