// Fuses the operators that exporters write for a linear layer into one Gemm.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Replaces MatMul(x, Transpose(w)), Add(MatMul(x, w), bias), and both together, by one Gemm over the rows of x [..., in], if the weight is
// a matrix and the bias a vector of the result's last extent. Then neither a weight nor its gradient is transposed in memory: the gradient
// of such a Gemm is one in the weight's own order. Other products stay as they are.
void FuseLinear(GraphBuilder& builder);

}  // namespace gradloom
