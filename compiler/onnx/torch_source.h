// What PyTorch's exporter notes about the origin of a node. Private to compiler/onnx.
#pragma once

#include <string_view>

#include "onnx/onnx_pb.h"

namespace gradloom {

// Returns the line of torch.export's graph that a node comes from, such as
// %add : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%relu, %detach), kwargs = {})
// Empty: the file does not say, or another exporter wrote it.
inline std::string_view TorchSource(const onnx::NodeProto& node) {
  for (const auto& note : node.metadata_props()) {
    if (note.key() == "pkg.torch.onnx.fx_node") return note.value();
  }
  return {};
}

}  // namespace gradloom
