// The largest number of a type below a bound, for numbers of a half-open range that rounding must not take to its end.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace gradloom {

// The next number of a floating-point type (also Half and Bfloat16) towards minus infinity. Not for infinities and NaN.
template <typename T>
constexpr T NextBelow(T value) {
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
  const Bits bits = std::bit_cast<Bits>(value);
  if ((bits & static_cast<Bits>(~kSign)) == 0) return std::bit_cast<T>(static_cast<Bits>(kSign | 1));
  return std::bit_cast<T>(static_cast<Bits>((bits & kSign) != 0 ? bits + 1 : bits - 1));
}

// The largest T in [low, high); `low` as T if there is none.
template <typename T>
constexpr T LargestBelow(double high, double low) {
  T largest = static_cast<T>(high);
  if (!(static_cast<double>(largest) < high)) largest = NextBelow(largest);
  return static_cast<double>(largest) < low ? static_cast<T>(low) : largest;
}

}  // namespace gradloom
