// Checks the structure of a model's graphs and function bodies. Private to compiler/onnx.
#pragma once

#include <string>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// Checks the main graph, its nested graphs and the functions. Throws Error(kName, kSchema, kGraph, kAttr, kType, kLimit) if a name is
// invalid; if a value is made twice, read before it is made, or never made; if an attribute is ill-formed or given twice; or if an input or
// output of the main graph has no type. `where` is the file. The running time is linear in the size of the model.
void CheckGraphs(const onnx::ModelProto& model, const std::string& where, const ModelLimits& limits);

}  // namespace gradloom
