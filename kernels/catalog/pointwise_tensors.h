// Calls of gradloom.FusedTensors: one pointwise program over several groups of tensors, so that many small ones are one launch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// The number of groups of one call. A kernel gets the addresses of all operands as parameters, of which there are 4 KiB on every GPU.
inline constexpr int kMaxFusedTensors = 64;
constexpr int MaxFusedTensors(size_t inputs, size_t outputs) {
  return std::min(kMaxFusedTensors, static_cast<int>(4000 / (8 * (inputs + outputs + 2))));
}

// The number of groups of a call, each with the same number of inputs and of outputs; -1 if its operands are not such groups.
int FusedTensorsOf(const KernelCall& call);

// The gradloom.Fused of one group, whose operands follow those of the groups before.
KernelCall FusedOf(const KernelCall& call, int tensor);

// Returns why a call is not one program over groups of tensors, or "". In a group, every operand has the shape of the results or a single
// element, which all groups have at the same inputs, unless the results have one element as well. All operands are row-major.
std::string RejectsFusedTensors(const KernelCall& call);

// Whether input `input` of the groups has a single element for all elements of the results.
bool IsSharedElement(const KernelCall& call, size_t input);

}  // namespace gradloom
