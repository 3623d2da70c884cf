// Maps element numbers in row-major order to offsets in other tensors.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/launch.cuh"
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

inline constexpr int kMaxRank = 8;

// The offsets, in elements, of element i of a shape in N tensors.
template <int N>
struct Walk {
  int rank = 0;
  int64_t extents[kMaxRank] = {};
  int64_t strides[N][kMaxRank] = {};

  // Merges axes that are adjacent in all tensors. Throws Error(kUnsupported) if more than kMaxRank remain.
  Walk(const Shape& shape, const std::array<std::vector<int64_t>, N>& all) {
    const Nest<N> nest(shape, all);
    if (nest.extents.size() > kMaxRank) throw Error(ErrorCode::kUnsupported, "more than 8 axes");
    rank = static_cast<int>(nest.extents.size());
    for (int axis = 0; axis < rank; ++axis) {
      extents[axis] = nest.extents[static_cast<size_t>(axis)];
      for (int k = 0; k < N; ++k) strides[k][axis] = nest.strides[static_cast<size_t>(k)][static_cast<size_t>(axis)];
    }
  }
  Walk() = default;

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
struct Places {
  int rank = 0;
  int64_t extents[kMaxRank] = {};

  // Throws Error(kUnsupported) for more than kMaxRank axes.
  explicit Places(const Shape& shape) : rank(shape.rank()) {
    if (rank > kMaxRank) throw Error(ErrorCode::kUnsupported, "more than 8 axes");
    for (int axis = 0; axis < rank; ++axis) extents[axis] = shape[axis];
  }

  GRADLOOM_DEVICE void operator()(int64_t i, int64_t (&index)[kMaxRank]) const {
    for (int axis = rank - 1; axis >= 0; --axis) {
      const Quotient q = Divide(i, extents[axis]);
      index[axis] = q.rest;
      i = q.quotient;
    }
  }
};

// One number per axis, in a form that can be captured by device lambdas.
struct AxisNumbers {
  int64_t at[kMaxRank] = {};
  AxisNumbers() = default;
  explicit AxisNumbers(const std::vector<int64_t>& values) {
    if (values.size() > kMaxRank) throw Error(ErrorCode::kUnsupported, "more than 8 axes");
    for (size_t i = 0; i < values.size(); ++i) at[i] = values[i];
  }
  GRADLOOM_DEVICE int64_t operator[](int axis) const { return at[axis]; }
};

}  // namespace gradloom::cuda
