// Fuses products with the operators after them, where cuBLASLt computes both in one kernel.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// For GPUs, after differentiation. If nothing else reads the product of a Gemm:
// - A ReLU of it makes it a GemmRelu.
// - A Gelu of it in tanh form, in 16 bits, makes it a GemmGelu, which also returns what the gradient reads. The product that the derivative
//   of that Gelu multiplies becomes a GemmGeluGrad, with the sums of its columns if a bias needs them.
// A Gemm over an operand whose sums along the same axis are also needed (the gradients of a weight and its bias) becomes a GemmBiasGrad.
void FuseEpilogues(GraphBuilder& builder);

}  // namespace gradloom
