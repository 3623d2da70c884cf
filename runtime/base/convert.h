// Converts one element from one numeric type to another.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/base/half.h"

namespace gradloom {

// Rounds to nearest even. Floating point to integer truncates, saturates where C++ leaves the result undefined, and gives 0 for NaN. To
// bool: whether it is not zero.
template <typename To, typename From>
To ConvertElement(From from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (std::is_same_v<To, bool>) {
    return static_cast<double>(from) != 0.0;
  } else if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
    const double value = static_cast<double>(from);
    if (value != value) return 0;
    // 2^63 is a double, 2^63 - 1 is not: compare against the power of two.
    const double low = static_cast<double>(std::numeric_limits<To>::min());
    const double past = std::ldexp(1.0, std::numeric_limits<To>::digits);
    if (value <= low) return std::numeric_limits<To>::min();
    if (value >= past) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  } else if constexpr (std::is_same_v<To, Half> || std::is_same_v<To, Bfloat16>) {
    return To(static_cast<float>(from));
  } else {
    return static_cast<To>(from);
  }
}

}  // namespace gradloom
