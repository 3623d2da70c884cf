// Several elements as one wider word: rows for kernels that only move them, and vectors for vectorized loads and stores.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

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

// kSize consecutive elements, which a thread loads or stores as one word.
template <typename T, int kSize>
struct alignas(kSize * sizeof(T)) AlignedVector {
  T at[kSize];
};

}  // namespace gradloom::cuda
