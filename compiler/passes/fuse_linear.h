// Makes one Gemm of the operators that exporters write for a linear layer.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Replaces MatMul(x, Transpose(w)) and Add(MatMul(x, w), bias), and both together, by one Gemm over the rows of x [..., in], where the
// weight is a matrix and the bias a vector of the result's last extent. No weight and no gradient of one is transposed in memory then: the
// gradient of such a Gemm is one that has the weight's own order. Products of which neither is true stay as they are.
void FuseLinear(GraphBuilder& builder);

}  // namespace gradloom
