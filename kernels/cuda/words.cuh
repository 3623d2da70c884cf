// Several elements as one wider word: rows for kernels that only move them, and vectors for vectorized loads and stores.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch.cuh"

namespace gradloom::cuda {

inline constexpr int64_t kMaxWordBytes = 16;

// The widest word whose size divides that of the rows. Buffers are aligned to at least that.
inline int64_t WordBytesOf(int64_t row_bytes) {
  int64_t bytes = 1;
  while (bytes < kMaxWordBytes && row_bytes % (2 * bytes) == 0) bytes *= 2;
  return bytes;
}

// Calls f(std::type_identity<T>{}) with a type of this size.
template <typename F>
decltype(auto) WithWord(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1: return f(std::type_identity<uint8_t>{});
    case 2: return f(std::type_identity<uint16_t>{});
    case 4: return f(std::type_identity<uint32_t>{});
    case 8: return f(std::type_identity<uint64_t>{});
    default: return f(std::type_identity<uint4>{});
  }
}

// Before a loop over an array that must be in registers, so that all its indices are constants.
#ifdef __CUDACC__
#define GRADLOOM_UNROLL _Pragma("unroll")
#else
#define GRADLOOM_UNROLL
#endif

// A Half or Bfloat16 without their constructor. nvcc constructs an array of vectors of those by a function that gets a pointer to it. That
// call is still there after a fast compilation, and ptxas then knows no limit for the kernel's stack, which is an error (bazel/cuda.bzl).
// So such arrays hold these.
struct Bits16 {
  uint16_t bits;
};

// kSize consecutive elements, which a thread loads or stores as one word.
template <typename T, int kSize>
struct alignas(kSize * sizeof(T)) AlignedVector {
  T at[kSize];
};

// Loads or stores the first `n` of kSize elements; the others are loaded as zeros.
template <int kSize, typename T>
GRADLOOM_DEVICE AlignedVector<T, kSize> LoadVector(const T* from, int64_t n) {
  using Vector = AlignedVector<T, kSize>;
  if (n >= kSize && reinterpret_cast<uintptr_t>(from) % sizeof(Vector) == 0) return *reinterpret_cast<const Vector*>(from);
  Vector vector = {};
  GRADLOOM_UNROLL
  for (int k = 0; k < kSize; ++k) {
    if (k < n) vector.at[k] = from[k];
  }
  return vector;
}
template <int kSize, typename T>
GRADLOOM_DEVICE void StoreVector(const AlignedVector<T, kSize>& vector, int64_t n, T* to) {
  using Vector = AlignedVector<T, kSize>;
  if (n >= kSize && reinterpret_cast<uintptr_t>(to) % sizeof(Vector) == 0) {
    *reinterpret_cast<Vector*>(to) = vector;
    return;
  }
  GRADLOOM_UNROLL
  for (int k = 0; k < kSize; ++k) {
    if (k < n) to[k] = vector.at[k];
  }
}

}  // namespace gradloom::cuda
