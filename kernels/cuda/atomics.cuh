// Atomic updates of integers in global memory. There are none for floating-point values, whose sums would depend on the order.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace gradloom::cuda {

GRADLOOM_DEVICE void AtomicAdd(int64_t* to, int64_t value) {
#ifdef __CUDA_ARCH__
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
#elif !defined(__CUDACC__)
  __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
#endif
}

GRADLOOM_DEVICE void AtomicMax(int64_t* to, int64_t value) {
#ifdef __CUDA_ARCH__
  atomicMax(reinterpret_cast<long long*>(to), static_cast<long long>(value));
#elif !defined(__CUDACC__)
  int64_t present = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (present < value && !__atomic_compare_exchange_n(to, &present, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
#endif
}

}  // namespace gradloom::cuda
