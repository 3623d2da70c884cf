// Gradient operators with several outputs compute only those that are used: the attribute `wanted` lists the inputs of the forward operator
// whose gradients are the outputs.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// The index of the output with the gradient of input `i` of the forward operator, or -1.
inline int64_t GradientOutputIndex(const KernelCall& call, int64_t i) {
  const std::vector<int64_t> wanted = call.attributes.Ints("wanted");
  const auto at = std::find(wanted.begin(), wanted.end(), i);
  return at == wanted.end() ? -1 : at - wanted.begin();
}

// That output, or null.
inline void* GradientOf(const KernelCall& call, void* const* outputs, int64_t i) {
  const int64_t index = GradientOutputIndex(call, i);
  return index < 0 ? nullptr : outputs[index];
}

// Sets all outputs to zero, for gradients that are accumulated.
inline void ZeroOutputs(const KernelCall& call, void* const* outputs) {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (outputs[i] != nullptr) std::memset(outputs[i], 0, static_cast<size_t>(call.outputs[i].bytes()));
  }
}

}  // namespace gradloom
