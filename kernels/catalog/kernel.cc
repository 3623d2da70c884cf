#include "kernels/catalog/kernel.h"

#include "runtime/base/error.h"

namespace gradloom {

std::string_view DeviceKindName(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu: return "cpu";
    case DeviceKind::kCuda: return "cuda";
  }
  throw Error(ErrorCode::kInternal, "unknown device kind " + std::to_string(static_cast<int>(kind)));
}

bool IsKnownConstant(DType dtype, int64_t elements) { return IsInteger(dtype) && elements <= 4096; }

bool KernelCall::IsKnown(size_t i) const {
  return i >= inputs.size() || !inputs[i].present() || (i < values.size() && values[i].dtype != DType::kUndefined);
}

std::vector<int64_t> KernelCall::ConstantInts(size_t i, std::vector<int64_t> absent) const {
  if (i >= inputs.size() || !inputs[i].present()) return absent;
  if (!IsKnown(i)) throw Error(ErrorCode::kUnsupported, op + ": input " + std::to_string(i) + " is not a constant");
  return IntValues(values[i]);
}

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
