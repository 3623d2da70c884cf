#include "kernels/catalog/pointwise_tensors.h"

#include <cstddef>
#include <vector>

#include "kernels/catalog/pointwise.h"

namespace gradloom {

int FusedTensorsOf(const KernelCall& call) {
  const int64_t tensors = call.attributes.Int("tensors", 0);
  if (tensors < 1 || tensors > kMaxFusedTensors || call.inputs.empty() || call.outputs.empty()) return -1;
  const auto groups = static_cast<size_t>(tensors);
  if (call.inputs.size() % groups != 0 || call.outputs.size() % groups != 0) return -1;
  return tensors > MaxFusedTensors(call.inputs.size() / groups, call.outputs.size() / groups) ? -1 : static_cast<int>(tensors);
}

KernelCall FusedOf(const KernelCall& call, int tensor) {
  const auto tensors = static_cast<std::ptrdiff_t>(FusedTensorsOf(call));
  const auto part = [&](const std::vector<OperandType>& all) {
    const std::ptrdiff_t each = static_cast<std::ptrdiff_t>(all.size()) / tensors;
    return std::vector<OperandType>(all.begin() + tensor * each, all.begin() + (tensor + 1) * each);
  };
  KernelCall fused{.op = "Fused",
                   .domain = "gradloom",
                   .attributes = call.attributes,
                   .inputs = part(call.inputs),
                   .outputs = part(call.outputs),
                   .threads = call.threads};
  fused.attributes.erase("tensors");
  return fused;
}

bool IsSharedElement(const KernelCall& call, size_t input) {
  for (int tensor = 0; tensor < FusedTensorsOf(call); ++tensor) {
    const KernelCall one = FusedOf(call, tensor);
    if (one.outputs[0].shape.elements() != 1) return one.inputs[input].shape.elements() == 1;
  }
  return false;
}

std::string RejectsFusedTensors(const KernelCall& call) {
  const int tensors = FusedTensorsOf(call);
  if (tensors < 0) return "an unexpected number of tensors";
  const KernelCall first = FusedOf(call, 0);
  for (int tensor = 0; tensor < tensors; ++tensor) {
    const KernelCall one = FusedOf(call, tensor);
    std::string why;
    if (!PointwiseProgramOf(one, &why)) return why;
    const Shape& shape = one.outputs[0].shape;
    for (size_t i = 0; i < one.inputs.size(); ++i) {
      const OperandType& operand = one.inputs[i];
      if (!operand.present() || operand.dtype != first.inputs[i].dtype) return "operands of several types";
      if (!operand.layout.plain()) return "operands in several layouts";
      const int64_t elements = IsSharedElement(call, i) ? 1 : shape.elements();
      if (operand.shape.elements() != elements || (elements != 1 && operand.shape != shape)) return "operands that are broadcast";
    }
    for (size_t k = 0; k < one.outputs.size(); ++k) {
      const OperandType& operand = one.outputs[k];
      if (operand.dtype != first.outputs[k].dtype || operand.shape != shape) return "results of several types";
      if (!operand.layout.plain()) return "operands in several layouts";
    }
  }
  return "";
}

}  // namespace gradloom
