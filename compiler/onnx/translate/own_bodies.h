// Expansions of ONNX operators that differ from the function body in their schema, or whose schema has none. Private to compiler/onnx.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

// Whether nodes of this operator may have one whatever their operands are.
bool MayHaveOwnBody(std::string_view domain, std::string_view op);

// `outputs`: the names of the node's outputs, empty for absent ones.
bool HasOwnBody(const Graph& graph, const Node& node, const std::vector<std::string>& outputs);

// The body of a node that has one, in ONNX's text syntax, at kOpset, with the parameter names of the schema. The node must match its
// schema. Throws Error(kUnsupported, kShape, kAttr), without a place, for an unsupported form.
std::string OwnBody(const Graph& graph, const Node& node);

}  // namespace gradloom
