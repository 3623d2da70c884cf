// Makes batch normalizations part of the convolutions before them.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// A float32 convolution whose result only a batch normalization with given statistics reads gets weights times the factor of each channel,
// and a bias with the rest, if both nodes' parameters depend on weights alone: then these are computed once for many runs
// (runtime/plan/settled.h), and the normalization costs nothing. Results differ by rounding. For graphs without gradients whose settled
// values are kept.
void FoldBatchNorm(GraphBuilder& builder);

}  // namespace gradloom
