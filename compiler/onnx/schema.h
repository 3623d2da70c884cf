// What an ONNX schema says of an operator's operands and attributes, and the check of a node against it.
// Private to this directory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/graph.h"
#include "onnx/defs/schema.h"

namespace gradloom {

// The newest schema of a standard operator up to `opset` of its domain ("" and "ai.onnx" are one), or
// null where there is none. It may be a deprecated one: old files have those.
const onnx::OpSchema* FindSchema(std::string_view domain, const std::string& op, int opset);

// The same at the opset of the Graph: kOpset for the default domain, the newest for the others. Never deprecated.
const onnx::OpSchema* FindSchema(std::string_view domain, const std::string& op);

// Throws Error(kArity, kAttr, kType) naming the node where the numbers of operands, the attributes, or
// the operands' dtypes contradict the schema.
void CheckNode(const Graph& graph, const Node& node, const onnx::OpSchema& schema);

// What can be done about an operator of ai.onnx.ml that we do not take; empty for one of another domain.
std::string HelpOfTraditional(const Node& node);

// The error for an operator without a schema: E-UNSUPPORTED with the nearest name.
[[noreturn]] void ThrowUnknownOperator(const Node& node);

// The standard operators of the default domain, sorted.
const std::vector<std::string>& AllOperatorNames();

}  // namespace gradloom
