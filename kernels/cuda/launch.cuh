// Launching device code: one call per element, or one call per row by a block of threads.
//
// The same source is compiled by nvcc for the device, and by the host compiler for tests, where the threads of a block take turns
// (emulated_launch.h). So arithmetic, indexing and the cooperation of threads are tested without a GPU. All differences are in this file,
// lines.cuh and atomics.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#ifndef __CUDACC__
#include <source_location>
#endif
#include <type_traits>
#include <utility>

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_kernel.h"
#ifndef __CUDACC__
#include "kernels/cuda/emulated_launch.h"
#endif

#ifdef __CUDACC__
#define GRADLOOM_DEVICE __device__ __forceinline__
// Starts a device lambda. It captures by value; the enclosing function must not be a generic lambda or a private member.
#define GRADLOOM_ON_DEVICE [=] __device__
#else
#define GRADLOOM_DEVICE inline
#define GRADLOOM_ON_DEVICE [=]
#endif

namespace gradloom::cuda {

inline constexpr int kThreads = 256;  // per block

#ifdef __CUDACC__

GRADLOOM_DEVICE int ThreadOfBlock() { return static_cast<int>(threadIdx.x); }
GRADLOOM_DEVICE void SyncBlock() { __syncthreads(); }
GRADLOOM_DEVICE void SyncWarp() { __syncwarp(); }
#define GRADLOOM_SHARED(memory, bytes) __shared__ alignas(16) unsigned char memory[bytes]

#else

// Barriers pass their source location, so that the emulation can check that all threads wait at the same one.
using Place = std::source_location;
inline int ThreadOfBlock() { return EmulatedThread(); }
inline void SyncBlock(const Place& where = Place::current()) { EmulatedSync(where); }
inline void SyncWarp(const Place& where = Place::current()) { EmulatedSyncWarp(where); }
#define GRADLOOM_SHARED(memory, bytes) \
  static const char memory##_name = 0; \
  auto* const memory = static_cast<unsigned char*>(EmulatedShared(&memory##_name, bytes))

#endif

// Applies `move`, a shuffle of 32-bit words, to each word of a value.
template <typename T, typename Move>
GRADLOOM_DEVICE T MovedByWords(const T& value, Move move) {
  static_assert(std::is_trivially_copyable_v<T>);
  constexpr int kWords = (sizeof(T) + 3) / 4;
  union {
    T value;
    unsigned words[kWords];
  } all{value};
  for (int k = 0; k < kWords; ++k) all.words[k] = move(all.words[k]);
  return all.value;
}

// Returns the value of the lane whose number differs in the bits of `mask`. All lanes of the warp must call it.
template <typename T>
GRADLOOM_DEVICE T ShuffleXor(const T& value, int mask) {
  return MovedByWords(value, [mask](unsigned word) {
#ifdef __CUDACC__
    return __shfl_xor_sync(0xFFFFFFFFu, word, mask);
#else
    return EmulatedShuffle(word, (EmulatedThread() % 32) ^ mask);
#endif
  });
}

// Returns the value of the lane `step` below; the lowest lanes get their own. All lanes of the warp must call it.
template <typename T>
GRADLOOM_DEVICE T ShuffleUp(const T& value, int step) {
  return MovedByWords(value, [step](unsigned word) {
#ifdef __CUDACC__
    return __shfl_up_sync(0xFFFFFFFFu, word, step);
#else
    const int lane = EmulatedThread() % 32;
    return EmulatedShuffle(word, lane < step ? lane : lane - step);
#endif
  });
}

// The kThreads threads that process a row. All of them must call the same members in the same order.
struct Block {
  GRADLOOM_DEVICE int thread() const { return ThreadOfBlock(); }
  GRADLOOM_DEVICE int threads() const { return kThreads; }
#ifdef __CUDACC__
  GRADLOOM_DEVICE void Sync() const { SyncBlock(); }
#else
  void Sync(const Place& where = Place::current()) const { SyncBlock(where); }
#endif

  // Reduces the values of all threads with combine(a, b), in an order that does not depend on timing; every thread gets the result.
  // `combine` must be associative up to rounding. T has at most 16 bytes.
  template <typename T, typename Combine>
  GRADLOOM_DEVICE T Reduce(T value, Combine combine) const {
    static_assert(sizeof(T) <= 16 && std::is_trivially_copyable_v<T>);
    GRADLOOM_SHARED(memory, 32 * 16);
    T* const shared = reinterpret_cast<T*>(memory);
    for (int step = 16; step > 0; step >>= 1) value = combine(value, ShuffleXor(value, step));
    if (thread() % 32 == 0) shared[thread() / 32] = value;
    Sync();
    value = shared[0];
    for (int warp = 1; warp < threads() / 32; ++warp) value = combine(value, shared[warp]);
    Sync();
    return value;
  }
};

#ifdef __CUDACC__

template <typename F>
__global__ void __launch_bounds__(kThreads) ElementsKernel(int64_t n, const F f) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) f(i);
}

template <typename F>
__global__ void __launch_bounds__(kThreads) RowsKernel(int64_t rows, const F f) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) f(Block{}, row);
}

// Calls f(i) for all i in [0, n), in any order.
template <typename F>
void ForEachElement(int64_t n, cudaStream_t stream, const F& f) {
  if (n <= 0) return;
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  ElementsKernel<<<static_cast<unsigned>(blocks < 65536 ? blocks : 65536), kThreads, 0, stream>>>(n, f);
  GRADLOOM_CUDA(cudaGetLastError());
}

// Calls f(block, row) for all rows in [0, rows), in any order, each with a block of kThreads threads. A block may process several rows: it
// needs a barrier before it overwrites shared memory of the previous row.
template <typename F>
void ForEachRow(int64_t rows, cudaStream_t stream, const F& f) {
  if (rows <= 0) return;
  RowsKernel<<<static_cast<unsigned>(rows < 65536 ? rows : 65536), kThreads, 0, stream>>>(rows, f);
  GRADLOOM_CUDA(cudaGetLastError());
}

#else

// Uses few warps, so that elements are visited in a random order.
template <typename F>
void ForEachElement(int64_t n, cudaStream_t stream, const F& f) {
  if (n <= 0) return;
  constexpr int64_t kLanes = 32, kFew = 4;
  const int64_t blocks = std::min((n + kLanes - 1) / kLanes, kFew);
  EmulatedGrid(stream, blocks, kLanes, [n, blocks, f](int64_t block) {
    for (int64_t i = block * kLanes + ThreadOfBlock(); i < n; i += blocks * kLanes) f(i);
  });
}

// Uses half as many blocks as rows, so that blocks process several rows, as in a large launch.
template <typename F>
void ForEachRow(int64_t rows, cudaStream_t stream, const F& f) {
  if (rows <= 0) return;
  const int64_t blocks = (rows + 1) / 2;
  EmulatedGrid(stream, blocks, kThreads, [rows, blocks, f](int64_t block) {
    for (int64_t row = block; row < rows; row += blocks) f(Block{}, row);
  });
}

#endif

struct Sum {
  template <typename T>
  GRADLOOM_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {
  template <typename T>
  GRADLOOM_DEVICE T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

// Refuses the step: this device and the others that take part in it leave persistent state as it is.
GRADLOOM_DEVICE void Refuse(DataFault* fault) {
  fault->refused = 1;
  for (int32_t i = 0; i < fault->num_peer_flags; ++i) *static_cast<volatile int32_t*>(fault->peer_flags[i]) = 1;
#ifdef __CUDA_ARCH__
  __threadfence_system();
#endif
}

// Whether the step has been refused; `refused` is KernelSite::refused.
GRADLOOM_DEVICE bool IsRefused(const int32_t* refused) { return refused != nullptr && *refused != 0; }

// Records a data error, unless one has been recorded before, and refuses the step.
GRADLOOM_DEVICE void Report(DataFault* fault, int site, FaultKind kind, int64_t value, int64_t limit) {
#ifdef __CUDA_ARCH__
  if (atomicCAS(&fault->site, -1, site) != -1) return;
#else
  int none = -1;
  if (!__atomic_compare_exchange_n(&fault->site, &none, site, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
#endif
  fault->kind = kind;
  fault->value = value;
  fault->limit = limit;
  Refuse(fault);
}

}  // namespace gradloom::cuda
