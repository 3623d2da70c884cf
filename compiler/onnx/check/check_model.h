// Structural checks of a parsed model, before its tensors are read. Private to compiler/onnx.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// Throws Error(kSchema, kVersion, kName, kGraph, kAttr, kType, kLimit) for errors in versions, names, the order and uniqueness of values,
// attributes and functions. Appends to `warnings` what is unusual but valid. `where` is the file.
void CheckModel(const onnx::ModelProto& model, const std::string& where, const ModelLimits& limits, std::vector<std::string>& warnings);

}  // namespace gradloom
