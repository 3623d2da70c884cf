// A block for long rows that are read more than once: with more threads per row, fewer rows compete for the cache.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace gradloom::cuda {

// With the interface of Block; `combine` must be commutative, so that all threads get the same bits.
struct LongBlock {
  static constexpr int kSize = 512;

  GRADLOOM_DEVICE int thread() const { return ThreadOfBlock(); }
  GRADLOOM_DEVICE int threads() const { return kSize; }
#ifdef __CUDACC__
  GRADLOOM_DEVICE void Sync() const { SyncBlock(); }
#else
  void Sync(const Place& where = Place::current()) const { SyncBlock(where); }
#endif

  // First within each warp. Then every warp reduces the results of all warps.
  template <typename T, typename Combine>
  GRADLOOM_DEVICE T Reduce(T value, Combine combine) const {
    constexpr int kNumWarps = kSize / 32;
    GRADLOOM_SHARED(memory, kNumWarps * 16);
    static_assert(sizeof(T) <= 16);
    T* const shared = reinterpret_cast<T*>(memory);
    for (int step = 16; step > 0; step >>= 1) value = combine(value, ShuffleXor(value, step));
    if (thread() % 32 == 0) shared[thread() / 32] = value;
    Sync();
    value = shared[thread() % kNumWarps];
    for (int step = kNumWarps / 2; step > 0; step >>= 1) value = combine(value, ShuffleXor(value, step));
    Sync();
    return value;
  }
};

#ifdef __CUDACC__

template <typename F>
__global__ void __launch_bounds__(LongBlock::kSize) LongRowsKernel(int64_t rows, const F f) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) f(LongBlock{}, row);
}

// Calls f(block, row) for all rows in [0, rows), in any order, as ForEachRow.
template <typename F>
void ForEachLongRow(int64_t rows, cudaStream_t stream, const F& f) {
  if (rows <= 0) return;
  LongRowsKernel<<<static_cast<unsigned>(rows < 65536 ? rows : 65536), LongBlock::kSize, 0, stream>>>(rows, f);
  GRADLOOM_CUDA(cudaGetLastError());
}

#else

// Uses half as many blocks as rows, as ForEachRow.
template <typename F>
void ForEachLongRow(int64_t rows, cudaStream_t stream, const F& f) {
  if (rows <= 0) return;
  const int64_t blocks = (rows + 1) / 2;
  EmulatedGrid(stream, blocks, LongBlock::kSize, [rows, blocks, f](int64_t block) {
    for (int64_t row = block; row < rows; row += blocks) f(LongBlock{}, row);
  });
}

#endif

}  // namespace gradloom::cuda
