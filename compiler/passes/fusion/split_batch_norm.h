// Splits batch normalization so that the operators after it are computed with it, in one pass over memory.
#pragma once

#include "compiler/graph/builder.h"
#include "kernels/catalog/kernel.h"

namespace gradloom {

// A batch normalization in training whose result only pointwise operators read becomes its statistics (gradloom.BatchNormLine) and
// pointwise operators, with which the following activations and sums are fused. Where the backward pass needs the result, it is recomputed
// from the operator's input, so it is never stored. No more bytes are moved than before: the operator reads its input twice anyway, and its
// readers read the input in place of the result. Values keep their ids. For float32; for CUDA also for 16-bit floats with float32
// parameters, whose arithmetic is then float32, like the operator's. Run it before remake_pointwise and fusion.
//
// On the CPU, one with given statistics, as in predictions, becomes pointwise operators alone.
void SplitBatchNorm(GraphBuilder& builder, DeviceKind device);

}  // namespace gradloom
