// Checks that the rows of CPU kernels make on their operands.
#pragma once

#include <string>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/operands.h"
#include "runtime/base/error.h"

namespace gradloom {

// "" if every operand is plain, else the reason.
inline std::string RejectsLayouts(const KernelCall& call) {
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (operand.present() && !operand.layout.plain()) return "layout " + operand.layout.ToString();
    }
  }
  return "";
}

// "" if every operand is plain, and input `input` (-1: every input) and the outputs have this dtype; else the reason.
inline std::string RejectsAllBut(const KernelCall& call, DType dtype, int input = -1) {
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const bool asked = input < 0 || static_cast<int>(i) == input;
    if (asked && call.inputs[i].present() && call.inputs[i].dtype != dtype) return std::string(DTypeName(call.inputs[i].dtype));
  }
  for (const OperandType& output : call.outputs) {
    if (output.present() && output.dtype != dtype) return std::string(DTypeName(output.dtype));
  }
  return "";
}

// "" if every operand is float32 and has elements, else the reason.
inline std::string RejectsElements(const KernelCall& call) {
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (!operand.present()) continue;
      if (operand.dtype != DType::kFloat32) return std::string(DTypeName(operand.dtype));
      if (operand.shape.elements() == 0) return "nothing to compute";
    }
  }
  return "";
}

// Whether elements can be moved as unsigned integers of their width by WithWidth.
inline bool HasWidth(DType dtype) {
  const int64_t bytes = DTypeBytes(dtype);
  return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
}

// Calls f with an unsigned integer that is as wide as an element.
template <typename F>
void WithWidth(DType dtype, F f) {
  switch (DTypeBytes(dtype)) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    case 8: return f(uint64_t{});
    default: GRADLOOM_CHECK(false);
  }
}

}  // namespace gradloom
