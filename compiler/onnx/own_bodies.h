// Expansions of ONNX operators that differ from the function body in their schema, or whose schema has none. Private to this directory.
#pragma once

#include <string>
#include <string_view>

#include "compiler/graph/graph.h"

namespace gradloom {

// Whether nodes of this operator may have one whatever their operands are.
bool MayHaveOwnBody(std::string_view domain, std::string_view op);

bool HasOwnBody(const Graph& graph, const Node& node);

// The body in ONNX's text syntax, at kOpset, with the parameter names of the schema; empty: use the body of the schema. The node must match
// its schema. Throws Error(kUnsupported, kShape, kAttr), without a place, for an unsupported form.
std::string OwnBody(const Graph& graph, const Node& node);

}  // namespace gradloom
