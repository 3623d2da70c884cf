// Operators of ONNX that are written out otherwise than by the body that their schema has, or that have none there. Private to this
// directory.
#pragma once

#include <string>
#include <string_view>

#include "compiler/graph/graph.h"

namespace gradloom {

// Of an operator, whose nodes have one or not.
bool MayHaveOwnBody(std::string_view domain, std::string_view op);

bool HasOwnBody(const Graph& graph, const Node& node);

// The body in ONNX's text, at kOpset, with the names of the schema's parameters; empty where the schema's is taken. The node fits its
// schema. Throws Error(kUnsupported, kShape, kAttr) without a place for a form that is not taken.
std::string OwnBody(const Graph& graph, const Node& node);

}  // namespace gradloom
