// How many determinants are under way at once: the same in a row, which states the scratch memory, and in its kernel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda {

// `count` determinants of matrices of n rows. Each is found in memory of one of some workers.
struct Determinants {
  int64_t count, n;

  // Of the matrices themselves, or of the minors of all their elements.
  static Determinants Of(const KernelCall& call) {
    const Shape& x = call.inputs[0].shape;
    const int64_t n = x[x.rank() - 1];
    if (call.op == "DetGrad") return {x.elements(), n - 1};
    return {call.outputs[0].shape.elements(), n};
  }

  int64_t size() const { return n * n; }
  // As many as 2^21 doubles of memory have room for, but 16.
  int64_t workers() const {
    return std::min({count, int64_t{1} << 16, std::max<int64_t>(16, (int64_t{1} << 21) / std::max<int64_t>(size(), 1))});
  }
  int64_t bytes() const { return workers() * size() * static_cast<int64_t>(sizeof(double)); }
};

}  // namespace gradloom::cuda
