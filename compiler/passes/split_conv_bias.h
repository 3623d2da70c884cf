// Biases of convolutions that are added with what follows.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// For CUDA, where a bias is a pass of its own over a convolution's result: it becomes an Add where a pointwise operator reads the result,
// with which it is fused. No bit changes: results of 16 bits are rounded before and behind the sum either way.
void SplitConvBias(GraphBuilder& builder);

}  // namespace gradloom
