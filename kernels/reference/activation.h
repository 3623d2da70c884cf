// Formulas of activations that an operator and a fused program share, for float and double.
#pragma once

#include <cmath>

namespace gradloom {

// Does not overflow for any x.
template <typename T>
T SoftplusElement(T x) {
  return (x > 0 ? x : T{0}) + std::log1p(std::exp(-std::fabs(x)));
}

template <typename T>
T GeluElement(T x) {
  return x * std::erfc(-x * T(0.70710678118654752440)) / 2;
}

// Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, section 2.
template <typename T>
T GeluTanhElement(T x) {
  return x / 2 * (1 + std::tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
}

template <typename T>
T Clamp01(T x) {
  return x < 0 ? T{0} : x > 1 ? T{1} : x;
}

}  // namespace gradloom
