// What PyTorch's exporter notes about the origin of a node. Private to compiler/onnx.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
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

// The row of a table without a gradient (padding_idx), if the node is a lookup of an nn.Embedding that has one:
// ... aten.embedding.default](args = (%p_weight, %ids, 0), kwargs = {})
inline std::optional<int64_t> PaddingRow(const onnx::NodeProto& node) {
  constexpr std::string_view kCall = "aten.embedding.default](args = (";
  const std::string_view source = TorchSource(node);
  const size_t call = source.find(kCall);
  if (call == std::string_view::npos) return std::nullopt;
  const std::string_view arguments = source.substr(call + kCall.size());
  size_t row = arguments.find(", ");
  if (row != std::string_view::npos) row = arguments.find(", ", row + 2);
  if (row == std::string_view::npos) return std::nullopt;
  int64_t number = 0;
  const char *const begin = arguments.data() + row + 2, *const end = arguments.data() + arguments.size();
  const auto [rest, error] = std::from_chars(begin, end, number);
  return error == std::errc() && rest != end && (*rest == ')' || *rest == ',') && number >= 0 ? std::optional(number) : std::nullopt;
}

}  // namespace gradloom
