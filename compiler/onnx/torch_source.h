// What PyTorch's exporter notes about the origin of a node. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

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

// The row of a table without a gradient (padding_idx), if the node is a lookup of an nn.Embedding that has one:
// ... aten.embedding.default](args = (%p_weight, %ids, 0), kwargs = {})
std::optional<int64_t> PaddingRow(const onnx::NodeProto& node);

// A call in torch.export's graph: the operator without overload ("linear"), the names of the operands that are tensors, and all arguments
// as text. Empty for any other line. Borrows `source`.
struct TorchCall {
  std::string_view op;
  std::vector<std::string_view> operands;
  std::string_view arguments;

  explicit TorchCall(std::string_view source);

  // "conv" for conv2d, convolution, conv_transpose1d; "layer_norm" for native_layer_norm; "batch_norm" for
  // _native_batch_norm_legit_no_training; and so on. Otherwise the operator.
  std::string_view family() const;
};

}  // namespace gradloom
