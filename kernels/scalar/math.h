// Functions of one float that a compiler can vectorize: no branches, tables, calls or errno. They are written once for the loops of all
// instruction sets and for CUDA. With contraction off, all machines with fused multiply-add compute the same bits.
//
// The largest errors found over all floats of the useful range, in ulps: exp 0.9, log 0.9, erf 1.0, tanh 1.4, sigmoid 2.4, expm1 1.6.
#pragma once

#ifdef __CUDACC__
#define GRADLOOM_MATH static __device__ __forceinline__
#else
// Internal linkage and always inlined: otherwise the linker might keep a copy compiled for one instruction set and use it for all.
#define GRADLOOM_MATH static inline __attribute__((always_inline, unused))
#endif

namespace gradloom::scalar {
namespace {

#ifdef __CUDACC__
GRADLOOM_MATH float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
GRADLOOM_MATH float FromBits(int i) { return __int_as_float(i); }
GRADLOOM_MATH int Bits(float f) { return __float_as_int(f); }
#define GRADLOOM_LIBM(name) name
#else
#ifdef __FMA__
GRADLOOM_MATH float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
GRADLOOM_MATH float Fma(float a, float b, float c) { return a * b + c; }
#endif
GRADLOOM_MATH float FromBits(int i) {
  float f;
  __builtin_memcpy(&f, &i, 4);
  return f;
}
GRADLOOM_MATH int Bits(float f) {
  int i;
  __builtin_memcpy(&i, &f, 4);
  return i;
}
#define GRADLOOM_LIBM(name) __builtin_##name
#endif

// x, or the bound if x exceeds it, which is not NaN; NaN stays NaN. Every compiler makes one instruction of it.
GRADLOOM_MATH float AtMost(float x, float bound) { return bound < x ? bound : x; }
GRADLOOM_MATH float AtLeast(float x, float bound) { return bound > x ? bound : x; }

GRADLOOM_MATH float Abs(float x) { return FromBits(Bits(x) & 0x7FFFFFFF); }
// |magnitude| with the sign of `sign`.
GRADLOOM_MATH float WithSign(float magnitude, float sign) {
  return FromBits((Bits(magnitude) & 0x7FFFFFFF) | (Bits(sign) & static_cast<int>(0x80000000u)));
}
// float16 and bfloat16, rounded to nearest even: the conversions of runtime/base/half.h, without branches.
GRADLOOM_MATH float HalfValue(int bits) {
  const int magnitude = bits & 0x7FFF;
  // The exponent is too small by 112: multiplication by 2^112 corrects it, also for subnormal numbers.
  const float value = magnitude >= 0x7C00 ? FromBits((magnitude << 13) | 0x7F800000) : FromBits(magnitude << 13) * 5.192296858534827628e33f;
  return WithSign(value, FromBits((bits & 0x8000) << 16));
}
GRADLOOM_MATH int HalfBits(float x) {
  const int magnitude = Bits(x) & 0x7FFFFFFF;
  // Adding 0.5 leaves the rounded multiple of 2^-24 in the low bits.
  const int subnormal = Bits(FromBits(magnitude) + 0.5f) - 0x3F000000;
  const int normal = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  const int finite = magnitude < 0x38800000 ? subnormal : normal;
  const int rounded = magnitude > 0x7F800000 ? 0x7E00 : magnitude >= 0x477FF000 ? 0x7C00 : finite;
  return rounded | ((Bits(x) >> 16) & 0x8000);
}
GRADLOOM_MATH float Bfloat16Value(int bits) { return FromBits(static_cast<int>(static_cast<unsigned>(bits) << 16)); }
GRADLOOM_MATH int Bfloat16Bits(float x) {
  const unsigned bits = static_cast<unsigned>(Bits(x));
  const unsigned rounded = bits + 0x7FFFu + ((bits >> 16) & 1u), quiet = bits | 0x400000u;
  return static_cast<int>(((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded) >> 16);
}

GRADLOOM_MATH float Sqrt(float x) { return GRADLOOM_LIBM(sqrtf)(x); }

// r * 2^n, in two steps so that n in [-150, 128] reaches zero, subnormal numbers and infinity.
GRADLOOM_MATH float TimesPowerOfTwo(float r, int n) {
  const int half = n >> 1;
  return r * FromBits((half + 127) << 23) * FromBits((n - half + 127) << 23);
}

// exp(x) = r * 2^n with n the nearest integer to x / log(2), for x in [-104, 89]. `t` leaves n in its low bits; those above are 0x4B400000.
GRADLOOM_MATH float ExpParts(float x, int& t_bits) {
  float t = Fma(x, 1.44269504f, 12582912.0f);
  t_bits = Bits(t);
  t -= 12582912.0f;
  float f = Fma(t, -6.93145752e-1f, x);
  f = Fma(t, -1.42860677e-6f, f);
  float r = 1.37805939e-3f;
  r = Fma(r, f, 8.37312452e-3f);
  r = Fma(r, f, 4.16695364e-2f);
  r = Fma(r, f, 1.66664720e-1f);
  r = Fma(r, f, 4.99999851e-1f);
  r = Fma(r, f, 1.0f);
  return Fma(r, f, 1.0f);
}

GRADLOOM_MATH float Exp(float x) {
  int t_bits;
  const float r = ExpParts(AtLeast(AtMost(x, 89.0f), -104.0f), t_bits);
  return TimesPowerOfTwo(r, t_bits - 0x4B400000);
}

// exp(x) for x <= 0, or 0 where that would be subnormal: a term of a sum whose largest one is 1, as in a softmax. Arithmetic with subnormal
// numbers takes many times as long on some processors, and masked scores (-100, -inf) would cost it at each use.
GRADLOOM_MATH float ExpTerm(float x) {
  constexpr float kLeast = -87.33f;
  int t_bits;
  const float r = ExpParts(AtLeast(x, kLeast), t_bits);
  return x < kLeast ? 0.0f : r * FromBits((t_bits - 0x4B400000 + 127) << 23);
}

// Cephes' logf: the mantissa in [sqrt(1/2), sqrt(2)), a polynomial, and the exponent in two parts.
GRADLOOM_MATH float Log(float x) {
  const bool subnormal = x < 1.17549435e-38f;
  const float scaled = subnormal ? x * 8388608.0f : x;
  const int bits = Bits(scaled);
  // Unsigned, because the difference wraps for negative numbers, whose logarithm is NaN below.
  const int exponent = static_cast<int>(static_cast<unsigned>(bits) - 0x3F3504F3u) >> 23;
  const float m = FromBits(static_cast<int>(static_cast<unsigned>(bits) - (static_cast<unsigned>(exponent) << 23))) - 1.0f;
  const float e = static_cast<float>(exponent - (subnormal ? 23 : 0));
  const float z = m * m;
  float y = 7.0376836292e-2f;
  y = Fma(y, m, -1.1514610310e-1f);
  y = Fma(y, m, 1.1676998740e-1f);
  y = Fma(y, m, -1.2420140846e-1f);
  y = Fma(y, m, 1.4249322787e-1f);
  y = Fma(y, m, -1.6668057665e-1f);
  y = Fma(y, m, 2.0000714765e-1f);
  y = Fma(y, m, -2.4999993993e-1f);
  y = Fma(y, m, 3.3333331174e-1f);
  y = y * m * z;
  y = Fma(e, -2.12194440e-4f, y);
  y = Fma(z, -0.5f, y);
  float r = Fma(e, 0.693359375f, m + y);
  const float infinity = FromBits(0x7F800000);
  r = x == infinity ? x : r;
  r = x == 0.0f ? -infinity : r;
  return x >= 0.0f ? r : FromBits(0x7FC00000);  // negative or NaN
}

// exp(x) - 1 for |x| < 0.5, without cancellation.
GRADLOOM_MATH float Expm1Small(float x) {
  float p = 2.48015873e-5f;
  p = Fma(p, x, 1.98412698e-4f);
  p = Fma(p, x, 1.38888889e-3f);
  p = Fma(p, x, 8.33333333e-3f);
  p = Fma(p, x, 4.16666667e-2f);
  p = Fma(p, x, 1.66666667e-1f);
  p = Fma(p, x, 0.5f);
  return Fma(p * x, x, x);
}
GRADLOOM_MATH float Expm1(float x) { return Abs(x) < 0.5f ? Expm1Small(x) : Exp(x) - 1.0f; }

// log(1 + x) for x in [0, 1], corrected for the rounding error of the sum.
GRADLOOM_MATH float Log1pUnit(float x) {
  const float u = 1.0f + x, rest = u - 1.0f;
  const float ratio = Log(u) * (x / (rest == 0.0f ? 1.0f : rest));
  return rest == 0.0f ? x : ratio;
}

// log(1 - erf(t)) for t > 0.9.
GRADLOOM_MATH float LogErfc(float t) {
  const float s = t * t;
  float r = Fma(-1.72853470e-5f, t, 3.83197126e-4f);
  const float u = Fma(-3.88396438e-3f, t, 2.42546219e-2f);
  r = Fma(r, s, u);
  r = Fma(r, t, -1.06777877e-1f);
  r = Fma(r, t, -6.34846687e-1f);
  r = Fma(r, t, -1.28717512e-1f);
  return Fma(r, t, -t);
}
// erf(x) for |x| <= kErfSmall.
constexpr float kErfSmall = 0.921875f;
GRADLOOM_MATH float ErfSmall(float x) {
  const float s = x * x;
  float p = -5.96761703e-4f;
  p = Fma(p, s, 4.99119423e-3f);
  p = Fma(p, s, -2.67681349e-2f);
  p = Fma(p, s, 1.12819925e-1f);
  p = Fma(p, s, -3.76125336e-1f);
  p = Fma(p, s, 1.28379166e-1f);
  return Fma(p, x, x);
}
GRADLOOM_MATH float Erf(float x) {
  // Below -80, where 1 - exp(r) is 1 anyway, exp(r) might need two steps to be scaled.
  int t_bits;
  const float e = ExpParts(AtLeast(LogErfc(Abs(x)), -80.0f), t_bits);
  const float large =
      WithSign(1.0f - FromBits(static_cast<int>(static_cast<unsigned>(Bits(e)) + (static_cast<unsigned>(t_bits) << 23))), x);
  return Abs(x) > kErfSmall ? large : ErfSmall(x);
}

// tanh(x) for |x| < kTanhSmall.
constexpr float kTanhSmall = 0.625f;
GRADLOOM_MATH float TanhSmall(float x) {
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = Fma(p, z, 2.06390887954e-2f);
  p = Fma(p, z, -5.37397155531e-2f);
  p = Fma(p, z, 1.33314422036e-1f);
  p = Fma(p, z, -3.33332819422e-1f);
  return Fma(p * z, x, x);
}
GRADLOOM_MATH float Tanh(float x) {
  const float t = Abs(x), large = WithSign(1.0f - 2.0f / (Exp(t + t) + 1.0f), x);
  const float y = t < kTanhSmall ? TanhSmall(x) : large;
  return x != x ? x : y;
}

GRADLOOM_MATH float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }
GRADLOOM_MATH float Softplus(float x) { return (x > 0.0f ? x : 0.0f) + Log1pUnit(Exp(-Abs(x))) + (x != x ? x : 0.0f); }
GRADLOOM_MATH float Gelu(float x) { return 0.5f * x * (1.0f + Erf(x * 0.70710678118654752440f)); }
GRADLOOM_MATH float GeluTanh(float x) { return 0.5f * x * (1.0f + Tanh(0.79788456080286535588f * (x + 0.044715f * x * x * x))); }
GRADLOOM_MATH float Clamp01(float x) { return x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x; }
GRADLOOM_MATH float SignOf(float x) { return x != x ? x : x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }
// The larger (smaller) of two numbers; NaN if either is NaN.
GRADLOOM_MATH float Larger(float a, float b) { return b != b ? b : b > a ? b : a; }
GRADLOOM_MATH float Smaller(float a, float b) { return b != b ? b : b < a ? b : a; }
// By libm; only Ceil, Floor and Rint are instructions.
GRADLOOM_MATH float Acos(float x) { return GRADLOOM_LIBM(acosf)(x); }
GRADLOOM_MATH float Acosh(float x) { return GRADLOOM_LIBM(acoshf)(x); }
GRADLOOM_MATH float Asin(float x) { return GRADLOOM_LIBM(asinf)(x); }
GRADLOOM_MATH float Asinh(float x) { return GRADLOOM_LIBM(asinhf)(x); }
GRADLOOM_MATH float Atan(float x) { return GRADLOOM_LIBM(atanf)(x); }
GRADLOOM_MATH float Atanh(float x) { return GRADLOOM_LIBM(atanhf)(x); }
GRADLOOM_MATH float Ceil(float x) { return GRADLOOM_LIBM(ceilf)(x); }
GRADLOOM_MATH float Cos(float x) { return GRADLOOM_LIBM(cosf)(x); }
GRADLOOM_MATH float Cosh(float x) { return GRADLOOM_LIBM(coshf)(x); }
GRADLOOM_MATH float Floor(float x) { return GRADLOOM_LIBM(floorf)(x); }
GRADLOOM_MATH float Rint(float x) { return GRADLOOM_LIBM(rintf)(x); }
GRADLOOM_MATH float Sin(float x) { return GRADLOOM_LIBM(sinf)(x); }
GRADLOOM_MATH float Sinh(float x) { return GRADLOOM_LIBM(sinhf)(x); }
GRADLOOM_MATH float Tan(float x) { return GRADLOOM_LIBM(tanf)(x); }
GRADLOOM_MATH float Fmod(float a, float b) { return GRADLOOM_LIBM(fmodf)(a, b); }
GRADLOOM_MATH float Pow(float a, float b) { return GRADLOOM_LIBM(powf)(a, b); }
// fmod with the sign of b.
GRADLOOM_MATH float FloorMod(float a, float b) {
  const float r = Fmod(a, b);
  return r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
}

}  // namespace
}  // namespace gradloom::scalar
