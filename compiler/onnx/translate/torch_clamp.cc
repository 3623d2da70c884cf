#include "compiler/onnx/translate/torch_clamp.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "compiler/onnx/torch_source.h"

namespace gradloom {
namespace {

// Whether torch.export's converter made the name of a value that its graph does not have.
bool IsConverterValue(std::string_view name) {
  static constexpr std::string_view kStart = "val_";
  return name.starts_with(kStart) && name.size() > kStart.size() &&
         std::all_of(name.begin() + kStart.size(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool IsTorchClamp(const onnx::NodeProto& proto) {
  const std::string_view source = TorchSource(proto);
  if (source.empty()) return IsConverterValue(proto.input(1));
  // A bound that is a tensor in the code stays one, and shares the gradient.
  return source.find("target=torch.ops.aten.clamp.") != std::string_view::npos &&
         source.find(", %scalar_tensor_default") != std::string_view::npos;
}

}  // namespace

void RestoreTorchClamp(Emitter& emitter, const onnx::NodeProto& proto, Node& node) {
  const bool highest = node.op == "Min";
  if ((node.op != "Max" && !highest) || !node.domain.empty() || node.inputs.size() != 2) return;
  const Value &x = emitter.graph().value(node.inputs[0]), &bound = emitter.graph().value(node.inputs[1]);
  if (!IsFloating(x.dtype) || bound.dtype != x.dtype || bound.shape.rank() != 0 || !IsTorchClamp(proto)) return;
  const ValueId number = emitter.Computed(bound.id);
  if (number == kNoValue) return;
  node.op = "Clip";
  node.inputs[1] = number;
  if (highest) node.inputs.insert(node.inputs.begin() + 1, kNoValue);
}

}  // namespace gradloom
