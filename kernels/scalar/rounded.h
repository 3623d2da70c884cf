// Functions of math.h for results that a GPU rounds to 16 bits, in a third to a half of the instructions: the hardware's approximations of
// powers of two and reciprocals. Relative errors are below 4e-5 (GELU) and 8e-6 (the others); rounding to float16 adds 5e-4.
// Functions that are missing here are as fast in math.h, or rare.
#pragma once

#include "kernels/scalar/math.h"

namespace gradloom::scalar {
namespace {
namespace rounded {

#ifdef __CUDACC__
GRADLOOM_MATH float PowerOfTwo(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
GRADLOOM_MATH float Inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
GRADLOOM_MATH float PowerOfTwo(float x) { return __builtin_exp2f(x); }
GRADLOOM_MATH float Inverse(float x) { return 1.0f / x; }
#endif

GRADLOOM_MATH float Exp(float x) { return PowerOfTwo(x * 1.44269504f); }

GRADLOOM_MATH float Expm1(float x) { return Abs(x) < 0.5f ? Expm1Small(x) : Exp(x) - 1.0f; }
GRADLOOM_MATH float Erf(float x) { return Abs(x) > kErfSmall ? WithSign(1.0f - Exp(LogErfc(Abs(x))), x) : ErfSmall(x); }
GRADLOOM_MATH float Sigmoid(float x) { return Inverse(1.0f + Exp(-x)); }
GRADLOOM_MATH float Tanh(float x) {
  const float t = Abs(x), large = WithSign(1.0f - 2.0f * Inverse(Exp(t + t) + 1.0f), x);
  const float y = t < kTanhSmall ? TanhSmall(x) : large;
  return x != x ? x : y;
}
GRADLOOM_MATH float Softplus(float x) { return (x > 0.0f ? x : 0.0f) + Log1pUnit(Exp(-Abs(x))) + (x != x ? x : 0.0f); }

// x times the normal distribution. The share outside of [-u, u], u = |x| / sqrt(2), is exp(-u^2) times a polynomial of 1 / (1 + 0.53 u),
// fitted for equal relative errors of at most 2.9e-5 over [0, 9.5]: no difference of nearly equal numbers for negative x.
GRADLOOM_MATH float Gelu(float x) {
  const float t = Inverse(Fma(Abs(x), 0.374766594f, 1.0f));
  float p = -0.181980653f;
  p = Fma(p, t, 0.403055010f);
  p = Fma(p, t, 0.165214381f);
  p = Fma(p, t, 0.315818879f);
  p = Fma(p, t, 0.297881099f);
  const float half_outside = 0.5f * (p * t) * PowerOfTwo(x * x * -0.721347520f);
  return x * (x > 0.0f ? 1.0f - half_outside : half_outside);
}

// 0.5 x (1 + tanh(y)) = x sigmoid(2 y).
GRADLOOM_MATH float GeluTanh(float x) { return x * Sigmoid(1.59576912160573071176f * (x + 0.044715f * x * x * x)); }

}  // namespace rounded
}  // namespace
}  // namespace gradloom::scalar
