// Products with what follows them, in the forms in which cuBLASLt does both in one kernel.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// For GPUs, behind differentiation. Where nothing else reads the product of a Gemm,
// - a ReLU of it makes it a GemmRelu;
// - a Gelu by its tanh form, in 16 bits, makes it a GemmGelu, which gives out what the gradient reads; the product that the derivative of
// that
//   multiplies becomes a GemmGeluGrad, with the sums of its columns where a bias wants them.
// A Gemm over an operand whose sums along the same axis are wanted, the gradients of a weight and its bias, becomes a GemmBiasGrad.
void FuseEpilogues(GraphBuilder& builder);

}  // namespace gradloom
