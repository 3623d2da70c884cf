// How device code of ours begins: a function for each element, or one for each row with a block of threads.
//
// The same source is compiled twice: by nvcc for the device, and by the host's compiler for tests, where a grid is a loop and a block has
// one thread. So arithmetic and indices are tested on machines without a GPU; what is left to a GPU is in this file.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_kernel.h"
#ifndef __CUDACC__
#include "kernels/cuda/emulated_launch.h"
#endif

#ifdef __CUDACC__
#define GRADLOOM_DEVICE __device__ __forceinline__
// Begins a lambda that runs on the device. It captures by value; the function around it is no generic lambda and no private member.
#define GRADLOOM_ON_DEVICE [=] __device__
#else
#define GRADLOOM_DEVICE inline
#define GRADLOOM_ON_DEVICE [=]
#endif

namespace gradloom::cuda {

inline constexpr int kThreads = 256;  // of a block

#ifdef __CUDACC__

// The value of the thread of this warp whose number differs in the bits of `mask`. All threads of the warp call it together.
template <typename T>
GRADLOOM_DEVICE T ShuffleXor(const T& value, int mask) {
  constexpr int kWords = (sizeof(T) + 3) / 4;
  union {
    T value;
    unsigned words[kWords];
  } all{value};
  for (int k = 0; k < kWords; ++k) all.words[k] = __shfl_xor_sync(0xFFFFFFFFu, all.words[k], mask);
  return all.value;
}

// The threads that share a row. All of them call the same members in the same order.
struct Block {
  GRADLOOM_DEVICE int thread() const { return static_cast<int>(threadIdx.x); }
  GRADLOOM_DEVICE int threads() const { return static_cast<int>(blockDim.x); }
  GRADLOOM_DEVICE void Sync() const { __syncthreads(); }

  // combine(a, b) over the values of all threads, in one order whatever the timing; every thread gets it. `combine` is associative up to
  // rounding; T has at most 16 bytes.
  template <typename T, typename Combine>
  GRADLOOM_DEVICE T Reduce(T value, Combine combine) const {
    __shared__ alignas(16) unsigned char memory[32 * 16];
    static_assert(sizeof(T) <= 16 && std::is_trivially_copyable_v<T>);
    T* const shared = reinterpret_cast<T*>(memory);
    for (int step = 16; step > 0; step >>= 1) value = combine(value, ShuffleXor(value, step));
    if (thread() % 32 == 0) shared[thread() / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int warp = 1; warp < threads() / 32; ++warp) value = combine(value, shared[warp]);
    __syncthreads();
    return value;
  }
};

template <typename F>
__global__ void __launch_bounds__(kThreads) ElementsKernel(int64_t n, const F f) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) f(i);
}

template <typename F>
__global__ void __launch_bounds__(kThreads) RowsKernel(int64_t rows, const F f) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) f(Block{}, row);
}

// f(i) for all i in [0, n), in no order.
template <typename F>
void ForEachElement(int64_t n, cudaStream_t stream, const F& f) {
  if (n <= 0) return;
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  ElementsKernel<<<static_cast<unsigned>(blocks < 65536 ? blocks : 65536), kThreads, 0, stream>>>(n, f);
  GRADLOOM_CUDA(cudaGetLastError());
}

// f(block, row) for all rows in [0, rows), in no order, each with a block of kThreads threads.
template <typename F>
void ForEachRow(int64_t rows, cudaStream_t stream, const F& f) {
  if (rows <= 0) return;
  RowsKernel<<<static_cast<unsigned>(rows < 65536 ? rows : 65536), kThreads, 0, stream>>>(rows, f);
  GRADLOOM_CUDA(cudaGetLastError());
}

#else

struct Block {
  int thread() const { return 0; }
  int threads() const { return 1; }
  void Sync() const {}
  template <typename T, typename Combine>
  T Reduce(T value, Combine) const {
    return value;
  }
};

template <typename F>
void ForEachElement(int64_t n, cudaStream_t stream, const F& f) {
  if (n <= 0) return;
  EmulatedLaunch(stream, [n, f] {
    for (int64_t i = 0; i < n; ++i) f(i);
  });
}

template <typename F>
void ForEachRow(int64_t rows, cudaStream_t stream, const F& f) {
  if (rows <= 0) return;
  EmulatedLaunch(stream, [rows, f] {
    for (int64_t row = 0; row < rows; ++row) f(Block{}, row);
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

// Lets this device and those that share the step leave what lives between steps as it is.
GRADLOOM_DEVICE void Refuse(DataFault* fault) {
  fault->refused = 1;
  for (int32_t i = 0; i < fault->num_told; ++i) *static_cast<volatile int32_t*>(fault->told[i]) = 1;
#ifdef __CUDA_ARCH__
  __threadfence_system();
#endif
}

// Whether that has been said; `refused` of a KernelSite.
GRADLOOM_DEVICE bool IsRefused(const int32_t* refused) { return refused != nullptr && *refused != 0; }

// Notes what is wrong, where nobody has before.
GRADLOOM_DEVICE void Report(DataFault* fault, int site, FaultKind kind, int64_t value, int64_t limit) {
#ifdef __CUDA_ARCH__
  if (atomicCAS(&fault->site, -1, site) != -1) return;
#else
  if (fault->site != -1) return;
  fault->site = site;
#endif
  fault->kind = kind;
  fault->value = value;
  fault->limit = limit;
  Refuse(fault);
}

}  // namespace gradloom::cuda
