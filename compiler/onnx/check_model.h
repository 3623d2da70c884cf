// Structural checks of a parsed model, before its tensors are read. Private to this room.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// Throws Error(kSchema, kVersion, kName, kGraph, kAttr, kLimit) naming what is wrong with versions, names, the order
// and uniqueness of values, attributes and functions; appends to `warnings` what is odd. `where` is the file.
// Sorts the nodes of graphs that are out of order.
void CheckModel(onnx::ModelProto& model, const std::string& where, const ModelLimits& limits, std::vector<std::string>& warnings);

}  // namespace gradloom
