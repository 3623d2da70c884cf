#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::scalar {
namespace {

// One loop per function. The result may share memory with an operand: each element is read before it is written, which `omp simd` asserts.
#define GRADLOOM_POINTWISE(name, operands, expression)             \
  void Loop##name(const PointwiseArgs& args) {                     \
    [[maybe_unused]] const float* pa = args.a;                     \
    [[maybe_unused]] const float* pb = operands > 1 ? args.b : pa; \
    [[maybe_unused]] const float* pc = operands > 2 ? args.c : pa; \
    float* const d = args.d;                                       \
    const Index n = args.n;                                        \
    _Pragma("omp simd") for (Index i = 0; i < n; ++i) {            \
      [[maybe_unused]] const float a = pa[i];                      \
      [[maybe_unused]] const float b = pb[i];                      \
      [[maybe_unused]] const float c = pc[i];                      \
      d[i] = (expression);                                         \
    }                                                              \
  }
#include "kernels/scalar/pointwise.def"
#undef GRADLOOM_POINTWISE

#ifdef __FMA__
// Up to this |x|, the range reduction below is accurate to the last place (N. Juffa, "Fast sin and cos in single precision").
constexpr float kMaxReduced = 71476.0625f;

// sin(x + quarters * pi / 2) for |x| up to kMaxReduced, with pi / 2 in three parts: 1.5 ulps.
GRADLOOM_MATH float SinReduced(float x, int quarters) {
  float quotient = Fma(x, 0.636619747f, 12582912.0f);  // leaves the nearest integer in the low bits
  const int n = Bits(quotient) + quarters;
  quotient -= 12582912.0f;
  float r = Fma(quotient, -1.57079601f, x);
  r = Fma(quotient, -3.13916473e-7f, r);
  r = Fma(quotient, -5.39030253e-15f, r);
  const float s = r * r;
  float sine = 2.86567956e-6f;
  sine = Fma(sine, s, -1.98559923e-4f);
  sine = Fma(sine, s, 8.33338592e-3f);
  sine = Fma(sine, s, -1.66666672e-1f);
  sine = Fma(sine, r * s, r);
  float cosine = 2.44677067e-5f;
  cosine = Fma(cosine, s, -1.38877297e-3f);
  cosine = Fma(cosine, s, 4.16666567e-2f);
  cosine = Fma(cosine, s, -5.00000000e-1f);
  cosine = Fma(cosine, s, 1.0f);
  const float y = (n & 1) != 0 ? cosine : sine;
  return FromBits(Bits(y) ^ ((n & 2) << 30));
}

// Larger elements, infinities and NaN go through libm one by one.
template <int kQuarters>
void LoopSinCos(const PointwiseArgs& args) {
  constexpr Index kBlock = 64;
  alignas(64) float x[kBlock];
  for (Index begin = 0; begin < args.n; begin += kBlock) {
    const Index n = args.n - begin < kBlock ? args.n - begin : kBlock;
    float* const d = args.d + begin;
    int far = 0;
#pragma omp simd reduction(| : far)
    for (Index i = 0; i < n; ++i) {
      x[i] = args.a[begin + i];
      far |= Abs(x[i]) <= kMaxReduced ? 0 : 1;
    }
#pragma omp simd
    for (Index i = 0; i < n; ++i) d[i] = SinReduced(x[i], kQuarters);
    for (Index i = 0; far != 0 && i < n; ++i) {
      if (!(Abs(x[i]) <= kMaxReduced)) d[i] = kQuarters == 0 ? GRADLOOM_LIBM(sinf)(x[i]) : GRADLOOM_LIBM(cosf)(x[i]);
    }
  }
}

constexpr PointwiseLoop Best(PointwiseLoop loop) { return loop == LoopSin ? LoopSinCos<0> : loop == LoopCos ? LoopSinCos<1> : loop; }
#else
constexpr PointwiseLoop Best(PointwiseLoop loop) { return loop; }
#endif

}  // namespace
}  // namespace gradloom::scalar

namespace gradloom::GRADLOOM_ISA {

const PointwiseLoop kPointwiseLoops[] = {
#define GRADLOOM_POINTWISE(name, operands, expression) scalar::Best(scalar::Loop##name),
#include "kernels/scalar/pointwise.def"
#undef GRADLOOM_POINTWISE
};

void Fill(float* to, float value, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) to[i] = value;
}

void ExpScaled(const float* x, float* y, Index n, float factor) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) y[i] = scalar::ExpTerm(x[i]) * factor;
}

}  // namespace gradloom::GRADLOOM_ISA
