// Products of real polynomials modulo z^(2 M) + 1, one line per lane, by their values at the M roots of z^M = i, where products are
// pointwise.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

constexpr Index kComplex = 2 * kLanes;  // numbers per element: the real parts of all lines, then the imaginary ones
constexpr float kHalfRoot3 = 0.866025403784438647f;

struct Complex {
  Vector re, im;
};

// c + a b and c - a b. With a loop over the lanes as in Fma, GCC 12 moves a loop-invariant vector out of a loop lane by lane.
GRADLOOM_INLINE Vector Plus(Vector c, Vector a, Vector b) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return Fma(a, b, c);
#endif
}
GRADLOOM_INLINE Vector Minus(Vector c, Vector a, Vector b) {
#if defined(__AVX512F__)
  return _mm512_fnmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fnmadd_ps(a, b, c);
#else
  return c - a * b;
#endif
}

GRADLOOM_INLINE Complex LoadElement(const float* p) { return {Load(p), Load(p + kLanes)}; }
GRADLOOM_INLINE void StoreElement(float* p, Complex x) {
  Store(p, x.re);
  Store(p + kLanes, x.im);
}
GRADLOOM_INLINE Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
GRADLOOM_INLINE Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
GRADLOOM_INLINE Complex Times(Complex a, float factor) {
  const Vector x = Broadcast(factor);
  return {a.re * x, a.im * x};
}
// a + i b and a - i b.
GRADLOOM_INLINE Complex PlusITimes(Complex a, Complex b) { return {a.re - b.im, a.im + b.re}; }
GRADLOOM_INLINE Complex MinusITimes(Complex a, Complex b) { return {a.re + b.im, a.im - b.re}; }

// x times a twiddle factor, or times its conjugate.
template <bool kConjugate>
GRADLOOM_INLINE Complex TimesTwiddle(Complex x, Complex twiddle) {
  const Vector re = x.re * twiddle.re, im = x.im * twiddle.re;
  return kConjugate ? Complex{Plus(re, x.im, twiddle.im), Minus(im, x.re, twiddle.im)}
                    : Complex{Minus(re, x.im, twiddle.im), Plus(im, x.re, twiddle.im)};
}
GRADLOOM_INLINE Complex TwiddleAt(const float* p) { return {BroadcastFrom(p), BroadcastFrom(p + 1)}; }

// Transforms the elements at x, x + step, ...: from a block's remainder modulo z^(radix span) - d^radix to those modulo each z^span - d
// root, or back.
template <Index kRadix, bool kInverse, bool kScaled>
GRADLOOM_INLINE void Butterfly(float* at, Index step, const Complex* twiddles, float scale) {
  Complex x[kRadix];
#pragma GCC unroll 4
  for (Index q = 0; q < kRadix; ++q) x[q] = LoadElement(at + q * step);
  if constexpr (!kInverse) {
#pragma GCC unroll 4
    for (Index q = 1; q < kRadix; ++q) x[q] = TimesTwiddle<false>(x[q], twiddles[q - 1]);
  }
  if constexpr (kRadix == 2) {
    const Complex sum = x[0] + x[1], difference = x[0] - x[1];
    x[0] = sum, x[1] = difference;
  } else if constexpr (kRadix == 3) {
    const Complex sum = x[1] + x[2], middle = x[0] - Times(sum, 0.5f), across = Times(x[1] - x[2], kHalfRoot3);
    x[0] = x[0] + sum;
    x[1] = kInverse ? MinusITimes(middle, across) : PlusITimes(middle, across);
    x[2] = kInverse ? PlusITimes(middle, across) : MinusITimes(middle, across);
  } else {
    const Complex s = x[0] + x[2], d = x[0] - x[2], t = x[1] + x[3], u = x[1] - x[3];
    x[0] = s + t;
    x[1] = kInverse ? MinusITimes(d, u) : PlusITimes(d, u);
    x[2] = s - t;
    x[3] = kInverse ? PlusITimes(d, u) : MinusITimes(d, u);
  }
  if constexpr (kInverse) {
#pragma GCC unroll 4
    for (Index q = 1; q < kRadix; ++q) x[q] = TimesTwiddle<true>(x[q], twiddles[q - 1]);
  }
#pragma GCC unroll 4
  for (Index q = 0; q < kRadix; ++q) StoreElement(at + q * step, kScaled ? Times(x[q], scale) : x[q]);
}

template <Index kRadix, bool kInverse, bool kScaled>
void Pass(const RingPass& pass, float* data, float scale) {
  const Index step = pass.span * kComplex;
  for (Index block = 0; block < pass.blocks; ++block, data += kRadix * step) {
    const float* const twiddle = pass.twiddles + block * 2 * (kRadix - 1);
    Complex twiddles[kRadix - 1];
#pragma GCC unroll 3
    for (Index q = 0; q + 1 < kRadix; ++q) twiddles[q] = TwiddleAt(twiddle + 2 * q);
    for (Index j = 0; j < pass.span; ++j) Butterfly<kRadix, kInverse, kScaled>(data + j * kComplex, step, twiddles, scale);
  }
}

template <bool kInverse, bool kScaled>
void RunPass(const RingPass& pass, float* data, float scale) {
  if (pass.radix == 2) return Pass<2, kInverse, kScaled>(pass, data, scale);
  if (pass.radix == 3) return Pass<3, kInverse, kScaled>(pass, data, scale);
  Pass<4, kInverse, kScaled>(pass, data, scale);
}

}  // namespace

void RingForward(const RingPass* passes, Index count, float* data) {
  for (Index i = 0; i < count; ++i) RunPass<false, false>(passes[i], data, 1);
}

void RingBackward(const RingPass* passes, Index count, float scale, float* data) {
  for (Index i = count - 1; i > 0; --i) RunPass<true, false>(passes[i], data, 1);
  RunPass<true, true>(passes[0], data, scale);
}

namespace {

// Adds conj(v) s to sum, where s is a scalar for all lanes.
GRADLOOM_INLINE void AddConjugate(Complex v, const float* s, Complex& sum) {
  const Vector re = BroadcastFrom(s), im = BroadcastFrom(s + kLanes);
  sum.re = Plus(Plus(sum.re, v.re, re), v.im, im);
  sum.im = Minus(Plus(sum.im, v.re, im), v.im, re);
}

template <Index kTerms, bool kAdds>
void Products(const RingProductArgs& args) {
  const Index rows = args.rows, s_row = args.s_row, c_row = args.c_row;
  for (Index f = 0; f < args.elements; ++f) {
    Complex v[kTerms];
#pragma GCC unroll 4
    for (Index i = 0; i < kTerms; ++i) v[i] = LoadElement(args.v + i * args.v_step + f * kComplex);
    const float* s = args.s + f * kComplex;
    float* c = args.c + f * kComplex;
    for (Index row = 0; row < rows; ++row, s += s_row, c += c_row) {
      Complex sum = kAdds ? LoadElement(c) : Complex{};
#pragma GCC unroll 4
      for (Index i = 0; i < kTerms; ++i) AddConjugate(v[i], s + i, sum);
      StoreElement(c, sum);
    }
  }
}

template <Index kColumns>
void Sums(const RingSumArgs& args) {
  const Index rows = args.rows, v_row = args.v_row, s_row = args.s_row;
  for (Index f = 0; f < args.elements; ++f) {
    Complex sums[kColumns] = {};
    const float *v = args.v + f * kComplex, *s = args.s + f * kComplex;
    for (Index row = 0; row < rows; ++row, v += v_row, s += s_row) {
      const Complex x = LoadElement(v);
#pragma GCC unroll 4
      for (Index i = 0; i < kColumns; ++i) AddConjugate(x, s + i, sums[i]);
    }
#pragma GCC unroll 4
    for (Index i = 0; i < kColumns; ++i) StoreElement(args.c + i * args.c_step + f * kComplex, sums[i]);
  }
}

}  // namespace

void RingProducts(const RingProductArgs& args) {
  constexpr void (*kByTerms[][2])(const RingProductArgs&) = {{nullptr, nullptr},
                                                             {Products<1, false>, Products<1, true>},
                                                             {Products<2, false>, Products<2, true>},
                                                             {Products<3, false>, Products<3, true>},
                                                             {Products<4, false>, Products<4, true>}};
  kByTerms[args.terms][args.adds ? 1 : 0](args);
}

void RingSums(const RingSumArgs& args) {
  constexpr void (*kByColumns[])(const RingSumArgs&) = {nullptr, Sums<1>, Sums<2>, Sums<3>, Sums<4>};
  kByColumns[args.columns](args);
}

}  // namespace gradloom::GRADLOOM_ISA
