// Lets what follows a batch normalisation be done with it, in one pass over memory.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// A float32 batch normalisation in training of which pointwise operators alone read the result becomes its statistics
// (gradloom.BatchNormLine) and pointwise operators, with which activations and sums behind it are fused; made again from the operator's
// input where the backward pass wants it, the result is never stored. Values keep their ids. For the CPU: before remake_pointwise and
// fusion.
void SplitBatchNorm(GraphBuilder& builder);

}  // namespace gradloom
