// Mixed precision: which nodes compute in 16 bits.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Rewrites a float32 forward graph so that products (matrices, convolutions, attention, recurrent nets) take and give `low`, and what lies
// between them follows where its operands are there already; sums of many elements, exponentials and every node from `first_loss_node` on
// (-1: none) stay float32. Casts stand in between; parameters are cast where they are read and stay float32 themselves, and so do outputs,
// next values and everything that is not float32. A constant that `low` cannot hold keeps its node in float32.
//
// Before differentiation: the gradient of a cast is a cast back, so that gradients follow their values and those of parameters are float32.
void LowerPrecision(GraphBuilder& builder, DType low, NodeId first_loss_node);

// Lets float32 products of a graph, gradients included, round their operands to TensorFloat-32 on devices that have it: attribute
// "allow_tf32" of MatMul, Gemm, convolutions and their gradients.
void AllowTf32(Graph& graph);

}  // namespace gradloom
