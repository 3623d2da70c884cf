// Whether an attribute of a file is well-formed, whoever has it. Private to this directory.
#pragma once

#include <functional>
#include <string>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// Throws Error(kAttr) for an attribute without a type, or with values of another kind than its type says, and
// Error(kLimit) for one past limits.attribute_elements. `where` is asked for the place only then.
void CheckForm(const onnx::AttributeProto& attribute, const ModelLimits& limits, const std::function<std::string()>& where);

}  // namespace gradloom
