// The allowed attribute values of ONNX's operators, where the schema states them only in its text. Private to compiler/onnx.
#pragma once

#include <string>

#include "compiler/graph/graph.h"

namespace gradloom {

// Describes an invalid attribute of a standard operator: an unknown keyword, a number that is too small, an axis that does not fit in 32
// bits. "" if all are valid. The attributes must have the types of the schema.
std::string AttributeFault(const Node& node);

}  // namespace gradloom
