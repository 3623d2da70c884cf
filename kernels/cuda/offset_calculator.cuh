// Maps element numbers in row-major order to offsets in other tensors.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference/operands.h"

namespace gradloom::cuda {

// a / b and a % b for b > 0. Uses 32-bit division if possible, which is several times faster on a GPU.
struct Quotient {
  int64_t quotient, rest;
};
GRADLOOM_DEVICE Quotient Divide(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) {
    const uint32_t q = static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
    return {q, static_cast<uint32_t>(a) - q * static_cast<uint32_t>(b)};
  }
  return {a / b, a % b};
}

using cuda_rows::kMaxAxes;

inline Error TooManyAxes() { return Error(ErrorCode::kUnsupported, "more than " + std::to_string(kMaxAxes) + " axes"); }

// The offsets, in elements, of element i of a shape in N tensors.
template <int N>
struct OffsetCalculator {
  int rank = 0;
  int64_t extents[kMaxAxes] = {};
  int64_t strides[N][kMaxAxes] = {};

  // Merges axes that are adjacent in all tensors. Throws Error(kUnsupported) if more than kMaxAxes remain.
  OffsetCalculator(const Shape& shape, const std::array<std::vector<int64_t>, N>& all) {
    const Nest<N> nest(shape, all);
    if (nest.extents.size() > kMaxAxes) throw TooManyAxes();
    rank = static_cast<int>(nest.extents.size());
    for (int axis = 0; axis < rank; ++axis) {
      extents[axis] = nest.extents[static_cast<size_t>(axis)];
      for (int k = 0; k < N; ++k) strides[k][axis] = nest.strides[static_cast<size_t>(k)][static_cast<size_t>(axis)];
    }
  }
  OffsetCalculator() = default;

  struct Offsets {
    int64_t at[N];
  };
  GRADLOOM_DEVICE Offsets operator()(int64_t i) const {
    Offsets offsets = {};
    for (int axis = rank - 1; axis > 0; --axis) {
      const Quotient q = Divide(i, extents[axis]);
      for (int k = 0; k < N; ++k) offsets.at[k] += q.rest * strides[k][axis];
      i = q.quotient;
    }
    if (rank > 0) {
      for (int k = 0; k < N; ++k) offsets.at[k] += i * strides[k][0];
    }
    return offsets;
  }
};

// The index of element i along each axis of a shape.
struct IndexCalculator {
  int rank = 0;
  int64_t extents[kMaxAxes] = {};

  // Throws Error(kUnsupported) for more than kMaxAxes axes.
  explicit IndexCalculator(const Shape& shape) : rank(shape.rank()) {
    if (rank > kMaxAxes) throw TooManyAxes();
    for (int axis = 0; axis < rank; ++axis) extents[axis] = shape[axis];
  }

  GRADLOOM_DEVICE void operator()(int64_t i, int64_t (&index)[kMaxAxes]) const {
    for (int axis = rank - 1; axis >= 0; --axis) {
      const Quotient q = Divide(i, extents[axis]);
      index[axis] = q.rest;
      i = q.quotient;
    }
  }
};

// One number per axis, in a form that can be captured by device lambdas.
struct AxisArray {
  int64_t at[kMaxAxes] = {};
  AxisArray() = default;
  explicit AxisArray(const std::vector<int64_t>& values) {
    if (values.size() > kMaxAxes) throw TooManyAxes();
    for (size_t i = 0; i < values.size(); ++i) at[i] = values[i];
  }
  GRADLOOM_DEVICE int64_t operator[](int axis) const { return at[axis]; }
};

}  // namespace gradloom::cuda
