// The schemas of ONNX's own operators. Private to compiler/onnx.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "onnx/defs/schema.h"

namespace gradloom {

// The newest version, up to `opset` of its domain ("" for ONNX's default), of an operator's schema, which may be deprecated; null if there
// is none. It lives as long as the process. May be called by several threads at a time.
//
// A schema is made when it is first asked for. ONNX's registry makes all of them at the first question, which takes longer than everything
// else that the command does with a small model.
const onnx::OpSchema* StandardSchema(std::string_view domain, std::string_view op, int opset);

// Whether the operator always computes the same results from the same inputs, as far as its schema says: that of ONNX's function
// GetNodeDeterminism, which looks up the operators of a function's body in the registry.
bool SchemaIsDeterministic(const onnx::OpSchema& schema);

// The names of the operators of the default domain, sorted; of deprecated ones, too.
const std::vector<std::string>& StandardOperators();

}  // namespace gradloom
