// The positions of attention's vectors in its operands.
#pragma once

#include <cstdint>

#include "runtime/base/shape.h"

namespace gradloom {

// The vector of (batch, head, position) in [batch, heads, length, size], or, in three dimensions, in [batch, length, heads * size]. The
// constexpr functions are also used in device code.
struct AttentionVectors {
  int64_t heads = 0, length = 0, size = 0;
  bool flat = false;

  AttentionVectors() = default;
  AttentionVectors(const Shape& shape, int64_t head_count) : flat(shape.rank() == 3) {
    heads = flat ? head_count : shape[1];
    length = shape[flat ? 1 : 2];
    size = flat ? shape[2] / head_count : shape[3];
  }
  // The offset of the vector's first element.
  constexpr int64_t At(int64_t b, int64_t h, int64_t s) const {
    return (flat ? (b * length + s) * heads + h : (b * heads + h) * length + s) * size;
  }
  // The distance between consecutive positions, in elements.
  constexpr int64_t stride() const { return flat ? heads * size : size; }
};

}  // namespace gradloom
