#include "compiler/device_passes.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

namespace gradloom {

void RunDevicePasses(PassContext& context, const PassControl& control) {
  constexpr int kMaxRounds = 4;
  constexpr int64_t kAsMuchAsPossible = std::numeric_limits<int64_t>::max() / 2;  // estimates may be added
  const bool full = context.recipe.recompute == RecomputeMode::kFull;
  const int64_t limit = context.recipe.recompute == RecomputeMode::kAuto ? context.recipe.memory_limit : 0;
  const std::unique_ptr<Graph> original = limit > 0 || full ? context.graph.Clone() : nullptr;
  const auto names = context.fetch_names;
  RunStage(context, control, PassStage::kDevice);
  // Without the last passes it is not known how much memory a step needs.
  if ((limit == 0 && !full) || !control.stop_after.empty()) return;
  const auto run = [&](const RecomputeGoal& goal) {
    context.recompute = goal;
    context.recomputed = {};
    context.graph = *original->Clone();
    context.fetch_names = names;
    context.scheduled = {};
    RunStage(context, control, PassStage::kDevice);
  };
  const Place& place = context.plan.places[static_cast<size_t>(context.place)];
  int64_t least = context.scheduled.transient_bytes;
  RecomputeGoal best;
  const auto keep_smallest = [&] {
    if (context.scheduled.transient_bytes >= least) return;
    least = context.scheduled.transient_bytes;
    best = context.recompute;
  };
  if (full) {
    for (const bool segments : {false, true}) {
      run({kAsMuchAsPossible, segments});
      keep_smallest();
    }
  }
  for (int round = 0; round < kMaxRounds && !full; ++round) {
    const int64_t over =
        place.state_bytes + place.constants_bytes + context.scheduled.transient_bytes + 2 * context.scheduled.input_bytes - limit;
    if (over <= 0 || (round > 0 && context.recomputed.saving < context.recompute.bytes)) break;
    // An estimate that was too low once is corrected by more than what is missing.
    run({context.recompute.bytes + over + over / (round == 0 ? 16 : 4)});
    keep_smallest();
  }
  // Segments may save less than was expected, and values alone more than segments.
  if (!full && context.recompute.bytes > 0 &&
      place.state_bytes + place.constants_bytes + least + 2 * context.scheduled.input_bytes > limit) {
    run({kAsMuchAsPossible, false});
    keep_smallest();
  }
  if (best != context.recompute) run(best);
}

}  // namespace gradloom
