// Checked arithmetic on sizes that come from files: an overflow gives nullopt, never a wrapped number.
#pragma once

#include <cstdint>
#include <optional>

namespace gradloom {

inline std::optional<int64_t> CheckedAdd(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<int64_t> CheckedMul(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// `value` rounded up to a multiple of `alignment` (a power of two); value >= 0.
constexpr int64_t AlignUp(int64_t value, int64_t alignment) { return (value + alignment - 1) & ~(alignment - 1); }

// a / b, rounded up; a >= 0, b > 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace gradloom
