#include "compiler/onnx/torch_source.h"

#include <charconv>
#include <cstddef>
#include <system_error>

namespace gradloom {

std::optional<int64_t> PaddingRow(const onnx::NodeProto& node) {
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

TorchCall::TorchCall(std::string_view source) {
  constexpr std::string_view kTarget = "target=torch.ops.aten.", kArguments = "(args = (";
  const size_t target = source.find(kTarget), list = source.find(kArguments);
  if (target == std::string_view::npos || list == std::string_view::npos || list < target) return;
  const size_t begin = target + kTarget.size();
  op = source.substr(begin, source.find_first_of(".]", begin) - begin);
  arguments = source.substr(list + kArguments.size());
  arguments = arguments.substr(0, arguments.find(')'));
  const auto is_name = [](char c) { return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (size_t at = source.find('%', list); at != std::string_view::npos; at = source.find('%', at)) {
    const size_t first = ++at;
    while (at < source.size() && is_name(source[at])) ++at;
    operands.push_back(source.substr(first, at - first));
  }
}

std::string_view TorchCall::family() const {
  if (op.starts_with("conv")) return "conv";
  for (const std::string_view norm : {"layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm"}) {
    if (op.find(norm) != std::string_view::npos) return norm;
  }
  return op;
}

}  // namespace gradloom
