// The loss scale: gradients are made of a multiple of the loss, so that small ones survive 16 bits, and divided again before the update.
#pragma once

#include <cstdint>

#include "compiler/graph/builder.h"
#include "runtime/plan/loss_scale_state.h"

namespace gradloom {

// As torch.amp.GradScaler. A dynamic scale is halved where a gradient is infinite or NaN, and doubled after `growth_interval` good updates
// in a row. With any scale such an update is left out: parameters and states stay as they are, and its number is not counted.
struct LossScale {
  double initial = 0;  // 0: gradients are not scaled
  bool dynamic = false;
  int64_t growth_interval = 2000;
};

// float32 [], the scale of this step.
ValueId LossScaleValue(GraphBuilder& builder, const LossScale& options);

// The scale and its two counters after an update, which is good where `good` (bool []) is true.
void AddLossScaleUpdate(GraphBuilder& builder, const LossScale& options, ValueId good);

// int64 [], the updates left out so far.
ValueId SkippedUpdates(GraphBuilder& builder);

}  // namespace gradloom
