// Mixed precision: decides which nodes compute in 16 bits.
#pragma once

#include "compiler/graph/builder.h"
#include "compiler/passes/loss/loss_nodes.h"

namespace gradloom {

// Rewrites a float32 forward graph so that products (matrices, convolutions, attention, recurrent nets) take and return `low`. Nodes
// between them use `low` if their operands already do. Sums of many elements, exponentials and every node of the loss stay float32. Casts
// connect them. Parameters stay float32 and are cast where they are read. Outputs, next values and everything that is not float32 keep
// their types. A constant that `low` cannot represent keeps its node in float32.
//
// Run it before differentiation: the gradient of a cast is a cast back, so gradients have the type of their values, and those of parameters
// are float32.
void LowerPrecision(GraphBuilder& builder, DType low, const LossNodes& loss);

// Lets float32 products of a graph, including gradients, round their operands to TensorFloat-32 on devices that have it: sets the attribute
// "allow_tf32" of MatMul, Gemm, convolutions and their gradients.
void AllowTf32(Graph& graph);

}  // namespace gradloom
