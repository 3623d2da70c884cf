// ONNX's rules for operands and attributes that its type inference does not check. Private to compiler/onnx.
#pragma once

#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

// Checks a standard operator at opset kOpset that matches its schema. Throws Error(kAttr, kShape, kValue) with the node, field and value:
// windows and groups of convolutions, operands of losses, constant indices out of range. Kernels may rely on these checks.
void CheckOperands(const Graph& graph, const Node& node);

// Checks the inferred output types of a node.
void CheckTypes(const Graph& graph, const Node& node, const std::vector<ValueType>& types);

}  // namespace gradloom
