// The functions of math.h by the standard library, for float and double: those of the reference kernels, and of CUDA's kernels for
// operators that are not fused. Then the formulas of pointwise.def with these functions.
//
// Not for kernels/cpu/isa: the linker keeps one copy of each of these functions, which may be of an instruction set that a machine lacks.
#pragma once

#include <cmath>

#include "kernels/scalar/math.h"

#ifdef __CUDACC__
#define GRADLOOM_LIBM_FUNCTION __device__ __forceinline__
#else
#define GRADLOOM_LIBM_FUNCTION inline
#endif

namespace gradloom::libm {

#define GRADLOOM_STANDARD(Name, function) \
  template <typename A>                   \
  GRADLOOM_LIBM_FUNCTION A Name(A x) {    \
    return function(x);                   \
  }
GRADLOOM_STANDARD(Abs, std::fabs)
GRADLOOM_STANDARD(Acos, std::acos)
GRADLOOM_STANDARD(Acosh, std::acosh)
GRADLOOM_STANDARD(Asin, std::asin)
GRADLOOM_STANDARD(Asinh, std::asinh)
GRADLOOM_STANDARD(Atan, std::atan)
GRADLOOM_STANDARD(Atanh, std::atanh)
GRADLOOM_STANDARD(Ceil, std::ceil)
GRADLOOM_STANDARD(Cos, std::cos)
GRADLOOM_STANDARD(Cosh, std::cosh)
GRADLOOM_STANDARD(Erf, std::erf)
GRADLOOM_STANDARD(Exp, std::exp)
GRADLOOM_STANDARD(Expm1, std::expm1)
GRADLOOM_STANDARD(Floor, std::floor)
GRADLOOM_STANDARD(Log, std::log)
GRADLOOM_STANDARD(Rint, std::rint)
GRADLOOM_STANDARD(Sin, std::sin)
GRADLOOM_STANDARD(Sinh, std::sinh)
GRADLOOM_STANDARD(Sqrt, std::sqrt)
GRADLOOM_STANDARD(Tan, std::tan)
GRADLOOM_STANDARD(Tanh, std::tanh)
#undef GRADLOOM_STANDARD

template <typename A>
GRADLOOM_LIBM_FUNCTION A Fmod(A a, A b) {
  return std::fmod(a, b);
}
template <typename A>
GRADLOOM_LIBM_FUNCTION A Pow(A a, A b) {
  return std::pow(a, b);
}

// These two do not overflow for any x.
template <typename A>
GRADLOOM_LIBM_FUNCTION A Sigmoid(A x) {
  const A e = std::exp(-std::fabs(x));
  return (x < 0 ? e : A{1}) / (1 + e);
}
template <typename A>
GRADLOOM_LIBM_FUNCTION A Softplus(A x) {
  return (x > 0 ? x : A{0}) + std::log1p(std::exp(-std::fabs(x)));
}

template <typename A>
GRADLOOM_LIBM_FUNCTION A Gelu(A x) {
  return x * std::erfc(-x * A(0.70710678118654752440)) / 2;
}
// Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, section 2.
template <typename A>
GRADLOOM_LIBM_FUNCTION A GeluTanh(A x) {
  return x / 2 * (1 + std::tanh(A(0.79788456080286535588) * (x + A(0.044715) * x * x * x)));
}

template <typename A>
GRADLOOM_LIBM_FUNCTION A Clamp01(A x) {
  return x < 0 ? A{0} : x > 1 ? A{1} : x;
}
template <typename A>
GRADLOOM_LIBM_FUNCTION A SignOf(A x) {
  return x != x ? x : x > 0 ? A{1} : x < 0 ? A{-1} : A{0};
}
// The larger (smaller) of two numbers; NaN if either is NaN.
template <typename A>
GRADLOOM_LIBM_FUNCTION A Larger(A a, A b) {
  return a != a ? a : b != b || b > a ? b : a;
}
template <typename A>
GRADLOOM_LIBM_FUNCTION A Smaller(A a, A b) {
  return a != a ? a : b != b || b < a ? b : a;
}
// fmod with the sign of b.
template <typename A>
GRADLOOM_LIBM_FUNCTION A FloorMod(A a, A b) {
  const A r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

template <typename A>
GRADLOOM_LIBM_FUNCTION int HalfBits(A x) {
  return scalar::HalfBits(static_cast<float>(x));
}
template <typename A>
GRADLOOM_LIBM_FUNCTION int Bfloat16Bits(A x) {
  return scalar::Bfloat16Bits(static_cast<float>(x));
}
using scalar::Bfloat16Value;
using scalar::HalfValue;

// EluElement(a, alpha) ...
#define GRADLOOM_POINTWISE(name, operands, expression)                                                    \
  template <typename A>                                                                                   \
  GRADLOOM_LIBM_FUNCTION A name##Element(A a, [[maybe_unused]] A b = A{0}, [[maybe_unused]] A c = A{0}) { \
    return expression;                                                                                    \
  }
#include "kernels/scalar/pointwise.def"
#undef GRADLOOM_POINTWISE

}  // namespace gradloom::libm
