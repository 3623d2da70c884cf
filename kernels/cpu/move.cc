#include "kernels/cpu/move.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 15;
constexpr int64_t kTile = 16;

// Calls f(offset in the row-major tensor, offset in strided memory, count, stride) for rows of the last axis, or parts of rows, that cover
// all elements.
template <typename F>
void ForEachRow(const StridedView& view, int threads, F f) {
  const int64_t n = view.elements();
  threads = ThreadsFor(n, kElementsPerThread, threads);
  if (view.rank() == 0) return f(int64_t{0}, int64_t{0}, int64_t{1}, int64_t{1});
  const int last = view.rank() - 1;
  const int64_t width = view.extent(last), rows = n / width, step = view.stride(last);
  if (rows < threads) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t offset = view.Offset(row, last);
      ParallelRanges(width, 64, threads,
                     [&](int64_t begin, int64_t end) { f(row * width + begin, offset + begin * step, end - begin, step); });
    }
    return;
  }
  ParallelRanges(rows, 1, threads, [&](int64_t begin, int64_t end) {
    // The second-last axis is advanced by addition, the others by division.
    const int64_t inner = last > 0 ? view.extent(last - 1) : 1, stride = last > 0 ? view.stride(last - 1) : 0;
    for (int64_t row = begin; row < end;) {
      int64_t at = row % inner, offset = view.Offset(row, last);
      for (; at < inner && row < end; ++at, ++row, offset += stride) f(row * width, offset, width, step);
    }
  });
}

// The axis along which strided memory is contiguous, if it is not the last one and both are long enough for tiles; else -1.
int TransposedAxis(const StridedView& view) {
  const int last = view.rank() - 1;
  if (last < 1 || view.stride(last) == 1 || view.extent(last) < kTile / 2) return -1;
  for (int axis = 0; axis < last; ++axis) {
    if (view.stride(axis) == 1 && view.extent(axis) >= kTile / 2) return axis;
  }
  return -1;
}

// Planes of `axis` and the last axis, in groups of tiles along `axis`.
void TransposePlanes(const StridedView& view, int axis, const float* from, float* to, int threads) {
  const Loops& loops = BestLoops();
  const int last = view.rank() - 1;
  const int64_t rows = view.extent(axis), columns = view.extent(last), group = 4 * kTile;
  const int64_t groups = (rows + group - 1) / group, planes = view.elements() / (rows * columns);
  ParallelFor(planes * groups, ThreadsFor(view.elements(), kElementsPerThread, threads), [&](int64_t i) {
    int64_t rest = i / groups, in = 0, out = 0;
    for (int a = last; a-- > 0;) {
      if (a == axis) continue;
      const int64_t index = rest % view.extent(a);
      rest /= view.extent(a);
      in += index * view.stride(a);
      out += index * view.own_stride(a);
    }
    const int64_t row = i % groups * group;
    loops.transpose(from + in + row, view.stride(last), to + out + row * view.own_stride(axis), view.own_stride(axis),
                    std::min(group, rows - row), columns);
  });
}

}  // namespace

StridedView::StridedView(const Shape& shape, const int64_t* strides) {
  for (int axis = 0; axis < shape.rank(); ++axis) {
    elements_ *= shape[axis];
    if (shape[axis] == 1) continue;
    const auto at = static_cast<size_t>(rank_);
    if (rank_ > 0 && strides_[at - 1] == strides[axis] * shape[axis]) {
      extents_[at - 1] *= shape[axis];
      strides_[at - 1] = strides[axis];
    } else {
      extents_[at] = shape[axis];
      strides_[at] = strides[axis];
      ++rank_;
    }
  }
  int64_t own = 1;
  for (int axis = rank_; axis-- > 0;) {
    own_[static_cast<size_t>(axis)] = own;
    own *= extents_[static_cast<size_t>(axis)];
  }
}

int64_t StridedView::Offset(int64_t i, int axes) const {
  int64_t offset = 0;
  for (int axis = axes; axis-- > 0;) {
    offset += i % extent(axis) * stride(axis);
    i /= extent(axis);
  }
  return offset;
}

void GatherStrided(const StridedView& view, DType dtype, const void* from, void* to, int threads) {
  if (view.elements() == 0) return;
  if (const int axis = TransposedAxis(view); axis >= 0 && DTypeBytes(dtype) == 4) {
    return TransposePlanes(view, axis, static_cast<const float*>(from), static_cast<float*>(to), threads);
  }
  WithWidth(dtype, [&]<typename T>(T) {
    const T* x = static_cast<const T*>(from);
    T* z = static_cast<T*>(to);
    ForEachRow(view, threads, [&](int64_t own, int64_t offset, int64_t n, int64_t step) {
      const T* a = x + offset;
      T* b = z + own;
      if (step == 1) {
        std::memcpy(b, a, static_cast<size_t>(n) * sizeof(T));
      } else if (step == 0) {
        std::fill_n(b, n, *a);
      } else {
        for (int64_t i = 0; i < n; ++i) b[i] = a[i * step];
      }
    });
  });
}

void ScatterStrided(const StridedView& view, DType dtype, const void* from, void* to, int threads) {
  if (view.elements() == 0) return;
  WithWidth(dtype, [&]<typename T>(T) {
    const T* x = static_cast<const T*>(from);
    T* z = static_cast<T*>(to);
    ForEachRow(view, threads, [&](int64_t own, int64_t offset, int64_t n, int64_t step) {
      const T* a = x + own;
      T* b = z + offset;
      if (step == 1) {
        std::memcpy(b, a, static_cast<size_t>(n) * sizeof(T));
      } else {
        for (int64_t i = 0; i < n; ++i) b[i * step] = a[i];
      }
    });
  });
}

}  // namespace gradloom
