// Checks the call graph of a model's functions and its expanded size. Private to compiler/onnx.
#pragma once

#include <string>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// Throws Error(kGraph) for two functions with the same name and for recursive functions. Throws Error(kLimit) if calls and graphs are
// nested deeper than limits.nesting, or if the model has more than limits.nodes nodes after inlining all calls. Nothing is inlined to
// determine this. `where` is the file.
void CheckFunctions(const onnx::ModelProto& model, const std::string& where, const ModelLimits& limits);

}  // namespace gradloom
