// ONNX schemas: the operands and attributes of operators, and the check of a node against its schema. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/graph.h"
#include "onnx/defs/schema.h"

namespace gradloom {

// The newest schema of a standard operator up to `opset` of its domain ("" and "ai.onnx" are the same), or null if there is none. The
// schema may be deprecated, because old files use such operators.
const onnx::OpSchema* FindSchema(std::string_view domain, const std::string& op, int opset);

// The same at the opset of the Graph: kOpset for the default domain, the newest for the others. Never deprecated.
const onnx::OpSchema* FindSchema(std::string_view domain, const std::string& op);

// Throws Error(kArity, kAttr, kType) with the node if the number of operands, the attributes, or the operands' dtypes contradict the
// schema.
void CheckNode(const Graph& graph, const Node& node, const onnx::OpSchema& schema);

// What the user can do about an unsupported operator of ai.onnx.ml; empty for an operator of another domain.
std::string HelpOfTraditional(const Node& node);

// The error for an operator without a schema: E-UNSUPPORTED with the nearest name.
[[noreturn]] void ThrowUnknownOperator(const Node& node);

}  // namespace gradloom
