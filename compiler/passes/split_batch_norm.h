// Lets what follows a batch normalisation be done with it, in one pass over memory.
#pragma once

#include "compiler/graph/builder.h"
#include "kernels/catalog/kernel.h"

namespace gradloom {

// A batch normalisation in training of which pointwise operators alone read the result becomes its statistics (gradloom.BatchNormLine) and
// pointwise operators, with which activations and sums behind it are fused; made again from the operator's input where the backward pass
// wants it, the result is never stored. Of no such one more bytes are moved than before: the operator reads its input twice anyway, and
// what follows reads it in place of the result. Values keep their ids. Of float32; for CUDA of 16-bit floats with parameters in float32,
// too, whose arithmetic is float32 then, as the operator's is. Before remake_pointwise and fusion.
void SplitBatchNorm(GraphBuilder& builder, DeviceKind device);

}  // namespace gradloom
