// The number of determinants computed at a time, for the row, which states the scratch memory, and the kernel, which uses it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda {

// `count` n x n matrices whose determinants, or all of whose cofactors, are computed by a number of workers, each with its own memory.
struct Determinants {
  int64_t count, n;
  bool cofactors;

  static Determinants Of(const KernelCall& call) {
    const Shape& x = call.inputs[0].shape;
    const bool cofactors = call.op == "DetGrad";
    return {(cofactors ? call.inputs[1] : call.outputs[0]).shape.elements(), x[x.rank() - 1], cofactors};
  }

  // Doubles per worker: a copy of the matrix; for cofactors a second one, and the permutations of its rows and columns.
  int64_t size() const { return cofactors ? 2 * n * n + 2 * n : n * n; }
  // As many as fit into 2^21 doubles, but at least 16.
  int64_t workers() const {
    return std::min({count, int64_t{1} << 16, std::max<int64_t>(16, (int64_t{1} << 21) / std::max<int64_t>(size(), 1))});
  }
  int64_t bytes() const { return workers() * size() * static_cast<int64_t>(sizeof(double)); }
};

}  // namespace gradloom::cuda
