// Copies between row-major memory and strided memory.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"

namespace gradloom {

// Maps the elements of a row-major tensor to strided memory: the element at an index is at the sum of index * stride. Omits axes of extent
// 1, and merges axes where the strides allow it. Does not allocate memory.
class StridedView {
 public:
  // One stride per axis, in elements.
  StridedView(const Shape& shape, const int64_t* strides);

  int rank() const { return rank_; }
  int64_t elements() const { return elements_; }
  int64_t extent(int axis) const { return extents_[static_cast<size_t>(axis)]; }
  int64_t stride(int axis) const { return strides_[static_cast<size_t>(axis)]; }
  // The stride of the axis in the row-major tensor.
  int64_t own_stride(int axis) const { return own_[static_cast<size_t>(axis)]; }

  // The offset in strided memory of the i-th index tuple over axes [0, axes).
  int64_t Offset(int64_t i, int axes) const;

 private:
  std::array<int64_t, kMaxRank> extents_{}, strides_{}, own_{};
  int rank_ = 0;
  int64_t elements_ = 1;
};

// to[i] = from[view of i] for all elements of the row-major tensor; `from` points to index 0.
void GatherStrided(const StridedView& view, DType dtype, const void* from, void* to, int threads);

// to[view of i] = from[i].
void ScatterStrided(const StridedView& view, DType dtype, const void* from, void* to, int threads);

}  // namespace gradloom
