// Splits biases off convolutions, to be added by the operators after them.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// For CUDA, where a bias is a separate pass over a convolution's result: it becomes an Add if a pointwise operator reads the result, with
// which it is fused. No bit changes: 16-bit results are rounded before and after the sum either way.
void SplitConvBias(GraphBuilder& builder);

}  // namespace gradloom
