// What ONNX says of operands and attributes beside what its type inference looks at. Private to this directory.
#pragma once

#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

// Of a standard operator at opset kOpset whose form fits its schema. Throws Error(kAttr, kShape, kValue), naming node, field and value:
// windows and groups of convolutions, operands of losses, constant indices out of range. A kernel may rely on all of it.
void CheckOperands(const Graph& graph, const Node& node);

// What must hold of the output types that were inferred for it.
void CheckTypes(const Graph& graph, const Node& node, const std::vector<ValueType>& types);

}  // namespace gradloom
