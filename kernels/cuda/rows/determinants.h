// How many determinants are under way at once: the same in a row, which states the scratch memory, and in its kernel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda {

// `count` matrices of n rows, each of whose determinant, or all of whose cofactors, are found in memory of one of some workers.
struct Determinants {
  int64_t count, n;
  bool cofactors;

  static Determinants Of(const KernelCall& call) {
    const Shape& x = call.inputs[0].shape;
    const bool cofactors = call.op == "DetGrad";
    return {(cofactors ? call.inputs[1] : call.outputs[0]).shape.elements(), x[x.rank() - 1], cofactors};
  }

  // Doubles of a worker: the matrix; for cofactors another one, and the order of its rows and columns.
  int64_t size() const { return cofactors ? 2 * n * n + 2 * n : n * n; }
  // As many as 2^21 doubles of memory have room for, but 16.
  int64_t workers() const {
    return std::min({count, int64_t{1} << 16, std::max<int64_t>(16, (int64_t{1} << 21) / std::max<int64_t>(size(), 1))});
  }
  int64_t bytes() const { return workers() * size() * static_cast<int64_t>(sizeof(double)); }
};

}  // namespace gradloom::cuda
