// Random numbers depend on an element's position in the tensor of the whole batch, so a device with some of the samples draws the same
// numbers for them as a single device would.
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Maps the position of an element in a device's part to its position in the whole tensor. The part has samples [first, first + local) of
// `total` samples, each with `inner` adjacent elements; this repeats if axes precede the batch axis.
struct BatchSlice {
  int64_t total = 1, local = 1, inner = 0;  // inner = 0: the part is the whole
  int64_t first = 0;

  // The attribute `samples` is {total, local, inner}; `first` is the value of the corresponding operand.
  static BatchSlice Of(const KernelCall& call, int64_t first) {
    const std::vector<int64_t> samples = call.attributes.Ints("samples");
    if (samples.size() != 3) return {};
    return {samples[0], samples[1], samples[2], first};
  }

  constexpr uint64_t operator()(int64_t i) const {
    if (inner == 0) return static_cast<uint64_t>(i);
    const int64_t part = local * inner;
    return static_cast<uint64_t>(i / part * total * inner + first * inner + i % part);
  }
};

}  // namespace gradloom
