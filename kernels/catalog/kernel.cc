#include "kernels/catalog/kernel.h"

namespace gradloom {

std::string_view DeviceKindName(DeviceKind kind) { return kind == DeviceKind::kCpu ? "cpu" : "cuda"; }

std::string Rejection(const KernelRow& row, const KernelCall& call) {
  if (row.rejects != nullptr) return row.rejects(call);
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (!operand.layout.plain()) return "layout " + operand.layout.ToString();
    }
  }
  return "";
}

}  // namespace gradloom
