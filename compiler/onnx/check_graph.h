// The structure of a model's graphs and function bodies. Private to this directory.
#pragma once

#include <string>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// Of the main graph with those nested in it, and of the functions: throws Error(kName, kSchema, kGraph, kAttr, kType, kLimit) where a name
// is bad, a value is made twice, read before it is made, or made by nobody, an attribute is ill-formed or given twice, or an input or
// output of the main graph lacks its type. `where` is the file. Takes time in proportion to the model's size.
void CheckGraphs(const onnx::ModelProto& model, const std::string& where, const ModelLimits& limits);

}  // namespace gradloom
