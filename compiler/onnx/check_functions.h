// The functions of a model as a whole: who calls whom, and how much that comes to. Private to this directory.
#pragma once

#include <string>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// Throws Error(kGraph) for two functions of one name and for functions that call themselves or one another in a circle, and Error(kLimit)
// where calls and graphs are nested past limits.nesting, or the model has more than limits.nodes nodes once every call is written out.
// Nothing is written out to find that. `where` is the file.
void CheckFunctions(const onnx::ModelProto& model, const std::string& where, const ModelLimits& limits);

}  // namespace gradloom
