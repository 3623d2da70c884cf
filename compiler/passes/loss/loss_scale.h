// The loss scale: a multiple of the loss is differentiated, so that small gradients survive 16 bits, and the gradients are divided by it
// before the update.
#pragma once

#include <cstdint>

#include "compiler/graph/builder.h"
#include "runtime/plan/loss_scale_state.h"

namespace gradloom {

// Works like torch.amp.GradScaler. A dynamic scale is halved if a gradient is infinite or NaN, and doubled after `growth_interval` good
// updates in a row. With any scale such an update is skipped: parameters and states stay as they are, and its number is not counted.
struct LossScale {
  double initial = 0;  // 0: gradients are not scaled
  bool dynamic = false;
  int64_t growth_interval = 2000;
};

// float32 [], the scale of this step.
ValueId LossScaleValue(GraphBuilder& builder, const LossScale& options);

// Appends the next values of the scale and its two counters after an update, which is good if `good` (bool []) is true.
void AddLossScaleUpdate(GraphBuilder& builder, const LossScale& options, ValueId good);

// int64 [], the number of skipped updates so far.
ValueId SkippedUpdates(GraphBuilder& builder);

}  // namespace gradloom
