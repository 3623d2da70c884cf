// Operators of our own as ONNX's, for files that others read.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Replaces the losses over classes and the updates of optimizers among the nodes from `first` on by operators of ONNX, and by those of
// ai.onnx.preview.training where they say exactly the same: Momentum and Adagrad, and Adam where epsilon is 0, as ONNX adds it elsewhere.
// All others come out of the arithmetic that the kernels run (kernels/scalar/optimizers.h), written down. Results differ by rounding
// alone. Next values stay next values. Throws Error(kUnsupported) naming every operator that stays our own, and for updates that may be
// left out (a loss scale).
void ApplyStandardForm(GraphBuilder& builder, NodeId first);

}  // namespace gradloom
