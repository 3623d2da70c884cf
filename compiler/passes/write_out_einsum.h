// Einsum as products, sums and moves, for which there are fast kernels, gradients and rules of sharding.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Replaces every Einsum of floating elements, two operands at a time, in the order that computes and moves least: each operand loses the
// indices that nothing else has (a sum), each pair becomes one MatMul where it shares an index that is summed, and a product of elements
// where it does not. One that reads a diagonal (an index twice in an operand) stays. Results differ by the rounding of sums in another
// order.
void WriteOutEinsum(GraphBuilder& builder);

}  // namespace gradloom
