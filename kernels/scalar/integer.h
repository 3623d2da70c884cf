// Functions of integer elements, of the reference kernels and of CUDA's. Results wrap. The functions are constexpr, so that device code can
// call them.
#pragma once

#include <cstdint>
#include <type_traits>

namespace gradloom::integer {

// Through uint64: the most negative integer maps to itself, without undefined behavior.
template <typename T>
constexpr T Negate(T x) {
  return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x));
}

template <typename T>
constexpr bool IsNegative(T x) {
  if constexpr (std::is_signed_v<T>)
    return x < T{0};
  else
    return false;
}

template <typename T>
constexpr T Abs(T x) {
  return IsNegative(x) ? Negate(x) : x;
}

template <typename T>
constexpr T Sign(T x) {
  return static_cast<T>(IsNegative(x) ? -1 : x != T{0} ? 1 : 0);
}

template <typename T>
constexpr T PRelu(T x, T slope) {
  return IsNegative(x) ? static_cast<T>(static_cast<uint64_t>(x) * static_cast<uint64_t>(slope)) : x;
}

// Truncates towards zero. The only quotient that overflows wraps; b is not 0.
template <typename T>
constexpr T Quotient(T a, T b) {
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Negate(a);
  return static_cast<T>(a / b);
}

// The remainder with the sign of a, as in C's fmod, or of b, as in numpy.mod; b is not 0.
template <typename T>
constexpr T Remainder(T a, T b, bool sign_of_a) {
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return T{0};
  const T r = static_cast<T>(a % b);
  return !sign_of_a && r != T{0} && IsNegative(r) != IsNegative(b) ? static_cast<T>(r + b) : r;
}

// x shifted by any number of bits. For signed elements, a right shift is arithmetic.
template <typename T>
constexpr T Shifted(T x, T by, bool left) {
  constexpr uint64_t kBits = sizeof(T) * 8;
  const uint64_t shift = static_cast<uint64_t>(by);
  if (left) return shift >= kBits ? T{0} : static_cast<T>(static_cast<uint64_t>(x) << shift);
  return static_cast<T>(shift >= kBits ? x >> (kBits - 1) >> 1 : x >> shift);
}

// x^n by squaring, of an integer that was extended to 64 bits. Negative exponents truncate to 0 unless x is 1 or -1; also for x = 0.
constexpr uint64_t Power(uint64_t x, bool is_signed, int64_t n) {
  if (n < 0) return x == 1 ? 1 : is_signed && x == ~uint64_t{0} ? (n % 2 == 0 ? 1 : x) : 0;
  uint64_t power = 1;
  for (; n > 0; n >>= 1, x *= x) {
    if (n & 1) power *= x;
  }
  return power;
}

}  // namespace gradloom::integer
