// Replaces our own operators by ONNX's, for files that other programs read.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Replaces the losses over classes and the updates of optimizers among the nodes from `first` on by operators of ONNX, and by those of
// ai.onnx.preview.training if they are exactly equal: Momentum and Adagrad, and Adam if epsilon is 0, since ONNX adds it elsewhere. All
// others are recorded from the arithmetic that the kernels run (kernels/scalar/optimizers.h). Results differ only by rounding. Next values
// stay next values. Throws Error(kUnsupported) naming every operator that remains our own, and for updates that may be skipped (a loss
// scale).
void ApplyStandardForm(GraphBuilder& builder, NodeId first);

}  // namespace gradloom
