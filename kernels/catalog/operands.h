// What rows of every kind ask about the operands of a call.
#pragma once

#include <cstddef>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Whether an optional operand is there: calls may end early, and have gaps.
inline bool HasInput(const KernelCall& call, size_t i) { return i < call.inputs.size() && call.inputs[i].present(); }
inline bool HasOutput(const KernelCall& call, size_t i) { return i < call.outputs.size() && call.outputs[i].present(); }

}  // namespace gradloom
