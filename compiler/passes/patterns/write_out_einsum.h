// Writes Einsum as products, sums and moves, which have fast kernels, gradients and sharding rules.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Replaces every Einsum of floating-point elements, two operands at a time, in the order that computes and moves least. Each operand loses
// the indices that only it has (a sum). Each pair becomes one MatMul if it shares a summed index, and an elementwise product otherwise. An
// Einsum that reads a diagonal (an index twice in an operand) stays. Results differ by the rounding of sums in another order.
void WriteOutEinsum(GraphBuilder& builder);

}  // namespace gradloom
