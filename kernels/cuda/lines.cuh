// Rows of a tensor, each shared by as many threads as its length is worth: a block, a warp or one thread.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/walk.cuh"

namespace gradloom::cuda {

// A thread that has a row to itself, with the members of Block.
struct Alone {
  GRADLOOM_DEVICE int thread() const { return 0; }
  GRADLOOM_DEVICE int threads() const { return 1; }
  GRADLOOM_DEVICE void Sync() const {}
  template <typename T, typename Combine>
  GRADLOOM_DEVICE T Reduce(T value, Combine) const {
    return value;
  }
};

#ifdef __CUDACC__

// The 32 threads of a warp, with the members of Block. `combine` is commutative, so that all of them get the same bits.
struct Warp {
  GRADLOOM_DEVICE int thread() const { return static_cast<int>(threadIdx.x % 32); }
  GRADLOOM_DEVICE int threads() const { return 32; }
  GRADLOOM_DEVICE void Sync() const { __syncwarp(); }
  template <typename T, typename Combine>
  GRADLOOM_DEVICE T Reduce(T value, Combine combine) const {
    static_assert(std::is_trivially_copyable_v<T>);
    for (int step = 16; step > 0; step >>= 1) value = combine(value, ShuffleXor(value, step));
    return value;
  }
};

template <typename F>
__global__ void __launch_bounds__(kThreads) WarpRowsKernel(int64_t rows, const F f) {
  constexpr int kWarps = kThreads / 32;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; row < rows; row += step) f(Warp{}, row);
}

// f(warp, row) for all rows in [0, rows), in no order.
template <typename F>
void ForEachRowByWarp(int64_t rows, cudaStream_t stream, const F& f) {
  if (rows <= 0) return;
  const int64_t blocks = (rows + kThreads / 32 - 1) / (kThreads / 32);
  WarpRowsKernel<<<static_cast<unsigned>(blocks < 65536 ? blocks : 65536), kThreads, 0, stream>>>(rows, f);
  GRADLOOM_CUDA(cudaGetLastError());
}

#else

using Warp = Alone;

template <typename F>
void ForEachRowByWarp(int64_t rows, cudaStream_t stream, const F& f) {
  if (rows <= 0) return;
  EmulatedLaunch(stream, [rows, f] {
    for (int64_t row = 0; row < rows; ++row) f(Warp{}, row);
  });
}

#endif

// f(thread, row) for all rows in [0, rows), in no order.
template <typename F>
void ForEachRowAlone(int64_t rows, cudaStream_t stream, const F& f) {
  ForEachElement(
      rows, stream, GRADLOOM_ON_DEVICE(int64_t row) { f(Alone{}, row); });
}

// f(group, row) for all rows in [0, rows), in no order, where a row has `length` elements `step` apart. `f` is called with a Block, a Warp
// or an Alone. Rows whose elements are apart have neighbours between them: there threads that stand alone read side by side.
template <typename F>
void ForEachRowOf(int64_t rows, int64_t length, int64_t step, cudaStream_t stream, const F& f) {
  constexpr int64_t kManyRows = 8192;
  if (length <= 4 || (rows >= kManyRows && (length <= 32 || step > 1))) {
    ForEachRowAlone(rows, stream, f);
  } else if (length <= 1024) {
    ForEachRowByWarp(rows, stream, f);
  } else {
    ForEachRow(rows, stream, f);
  }
}

// The lines of a tensor along an axis: `count` lines of `extent` elements that lie `step` apart.
struct Lines {
  int64_t count = 1, extent = 1, step = 1;

  // A scalar is a line of one element. Throws Error(kAttr) where there is no such axis.
  Lines(const KernelCall& call, const Shape& shape, int64_t axis) {
    if (shape.rank() == 0) return;
    const int a = AxisOf(call, axis, shape.rank());
    extent = shape[a];
    step = Product(shape, a + 1, shape.rank());
    count = Product(shape, 0, a) * step;
  }

  // Where a line begins.
  GRADLOOM_DEVICE int64_t start(int64_t line) const {
    const Quotient q = Divide(line, step);
    return q.quotient * extent * step + q.rest;
  }
};

}  // namespace gradloom::cuda
