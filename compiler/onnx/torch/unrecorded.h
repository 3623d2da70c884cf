// What a module does in training and its file does not. Private to compiler/onnx.
#pragma once

#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace gradloom {

// A warning for each kind of this that the metadata of PyTorch's default exporter shows.
std::vector<std::string> WarningsOfUnrecorded(const onnx::GraphProto& graph);

}  // namespace gradloom
