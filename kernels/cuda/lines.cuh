// Rows of a tensor, each processed by a group of threads that suits its length: a block, a warp or one thread.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/offset_calculator.cuh"

namespace gradloom::cuda {

// A single thread that processes a row, with the interface of Block.
struct SingleThread {
  GRADLOOM_DEVICE int thread() const { return 0; }
  GRADLOOM_DEVICE int threads() const { return 1; }
  GRADLOOM_DEVICE void Sync() const {}
  template <typename T, typename Combine>
  GRADLOOM_DEVICE T Reduce(T value, Combine) const {
    return value;
  }
};

// The 32 threads of a warp, with the interface of Block. `combine` must be commutative, so that all threads get the same bits.
struct Warp {
  GRADLOOM_DEVICE int thread() const { return ThreadOfBlock() % 32; }
  GRADLOOM_DEVICE int threads() const { return 32; }
#ifdef __CUDACC__
  GRADLOOM_DEVICE void Sync() const { SyncWarp(); }
#else
  void Sync(const Place& where = Place::current()) const { SyncWarp(where); }
#endif
  template <typename T, typename Combine>
  GRADLOOM_DEVICE T Reduce(T value, Combine combine) const {
    for (int step = 16; step > 0; step >>= 1) value = combine(value, ShuffleXor(value, step));
    return value;
  }
};

inline constexpr int kWarps = kThreads / 32;  // per block

#ifdef __CUDACC__

template <typename F>
__global__ void __launch_bounds__(kThreads) WarpRowsKernel(int64_t rows, const F f) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; row < rows; row += step) f(Warp{}, row);
}

// Calls f(warp, row) for all rows in [0, rows), in any order.
template <typename F>
void ForEachRowByWarp(int64_t rows, cudaStream_t stream, const F& f) {
  if (rows <= 0) return;
  const int64_t blocks = (rows + kWarps - 1) / kWarps;
  WarpRowsKernel<<<static_cast<unsigned>(blocks < 65536 ? blocks : 65536), kThreads, 0, stream>>>(rows, f);
  GRADLOOM_CUDA(cudaGetLastError());
}

#else

// Uses half as many warps as rows need, as in ForEachRow.
template <typename F>
void ForEachRowByWarp(int64_t rows, cudaStream_t stream, const F& f) {
  if (rows <= 0) return;
  const int64_t blocks = (rows + 2 * kWarps - 1) / (2 * kWarps);
  EmulatedGrid(stream, blocks, kThreads, [rows, blocks, f](int64_t block) {
    for (int64_t row = block * kWarps + ThreadOfBlock() / 32; row < rows; row += blocks * kWarps) f(Warp{}, row);
  });
}

#endif

// Calls f(thread, row) for all rows in [0, rows), in any order.
template <typename F>
void ForEachRowByThread(int64_t rows, cudaStream_t stream, const F& f) {
  ForEachElement(
      rows, stream, GRADLOOM_ON_DEVICE(int64_t row) { f(SingleThread{}, row); });
}

// Calls f(group, row) for all rows in [0, rows), in any order; a row has `length` elements `step` apart. The group is a Block, a Warp or a
// SingleThread. With step > 1, the elements of neighboring rows are adjacent, so single threads make coalesced reads.
template <typename F>
void ForEachRowOf(int64_t rows, int64_t length, int64_t step, cudaStream_t stream, const F& f) {
  constexpr int64_t kManyRows = 8192;
  if (length <= 4 || (rows >= kManyRows && (length <= 32 || step > 1))) {
    ForEachRowByThread(rows, stream, f);
  } else if (length <= 1024) {
    ForEachRowByWarp(rows, stream, f);
  } else {
    ForEachRow(rows, stream, f);
  }
}

// The lines of a tensor along an axis: `count` lines of `extent` elements, `step` apart.
struct Lines {
  int64_t count = 1, extent = 1, step = 1;

  // A scalar is a line of one element. Throws Error(kAttr) if there is no such axis.
  Lines(const KernelCall& call, const Shape& shape, int64_t axis) {
    if (shape.rank() == 0) return;
    const int a = AxisOf(call, axis, shape.rank());
    extent = shape[a];
    step = Product(shape, a + 1, shape.rank());
    count = Product(shape, 0, a) * step;
  }

  // The offset of the first element of a line.
  GRADLOOM_DEVICE int64_t start(int64_t line) const {
    const Quotient q = Divide(line, step);
    return q.quotient * extent * step + q.rest;
  }
};

}  // namespace gradloom::cuda
