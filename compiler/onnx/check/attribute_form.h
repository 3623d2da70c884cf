// Checks whether an attribute of a file is well-formed, on any kind of node. Private to compiler/onnx.
#pragma once

#include <functional>
#include <string>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// Throws Error(kAttr) for an attribute that has no type or whose values do not match its type, and Error(kLimit) for an attribute that
// exceeds limits.attribute_elements. `where` is called only for an error, and returns the place.
void CheckForm(const onnx::AttributeProto& attribute, const ModelLimits& limits, const std::function<std::string()>& where);

}  // namespace gradloom
