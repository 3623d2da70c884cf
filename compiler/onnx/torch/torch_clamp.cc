#include "compiler/onnx/torch/torch_clamp.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/onnx/torch/torch_source.h"

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

// Whether a tensor of the file that is no number in the code decides the bound: a learned one, which a Clip would not train.
bool MayLearn(const Emitter& emitter, ValueId bound) {
  std::set<ValueId> seen;
  std::vector<ValueId> open{bound};
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (id == kNoValue || !emitter.may_train(id) || !seen.insert(id).second) continue;
    const Node* producer = emitter.Producer(id);
    if (producer != nullptr) {
      open.insert(open.end(), producer->inputs.begin(), producer->inputs.end());
    } else if (const std::string& name = emitter.graph().value(id).name;
               !IsConverterValue(name) && !name.starts_with("scalar_tensor_default")) {
      return true;
    }
  }
  return false;
}

}  // namespace

void RestoreTorchClamp(Emitter& emitter, const onnx::NodeProto& proto, Node& node) {
  const bool highest = node.op == "Min";
  if ((node.op != "Max" && !highest) || !node.domain.empty() || node.inputs.size() != 2) return;
  const Value &x = emitter.graph().value(node.inputs[0]), &bound = emitter.graph().value(node.inputs[1]);
  if (!IsFloating(x.dtype) || bound.dtype != x.dtype || bound.shape.rank() != 0 || !IsTorchClamp(proto) || MayLearn(emitter, bound.id))
    return;
  const ValueId number = emitter.Computed(bound.id);
  if (number == kNoValue) return;
  node.op = "Clip";
  node.inputs[1] = number;
  if (highest) node.inputs.insert(node.inputs.begin() + 1, kNoValue);
}

}  // namespace gradloom
