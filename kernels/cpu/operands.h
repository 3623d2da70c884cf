// What the rows of CPU kernels check of their operands.
#pragma once

#include <string>

#include "kernels/catalog/kernel.h"

namespace gradloom {

inline bool HasInput(const KernelCall& call, size_t i) { return i < call.inputs.size() && call.inputs[i].present(); }
inline bool HasOutput(const KernelCall& call, size_t i) { return i < call.outputs.size() && call.outputs[i].present(); }

inline int64_t Product(const Shape& shape, int begin, int end) {
  int64_t product = 1;
  for (int axis = begin; axis < end; ++axis) product *= shape[axis];
  return product;
}

// "" where every operand is plain.
inline std::string RejectsLayouts(const KernelCall& call) {
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (operand.present() && !operand.layout.plain()) return "layout " + operand.layout.ToString();
    }
  }
  return "";
}

// "" where every operand is plain, and input `input` (-1: every input) and the outputs are of one dtype.
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

}  // namespace gradloom
