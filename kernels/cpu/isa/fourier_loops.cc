#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

constexpr Index kComplex = 2 * kFourierLines;  // numbers per element: the real parts of all lines, then the imaginary ones

// Stores an output of a butterfly: (re + i im) times a twiddle factor, for one lane.
GRADLOOM_INLINE void StoreTwiddled(double* y, Index lane, double re, double im, const double* twiddle) {
  y[lane] = re * twiddle[0] - im * twiddle[1];
  y[lane + kFourierLines] = re * twiddle[1] + im * twiddle[0];
}

void Radix2(const FourierPassArgs& args) {
  const Index half = args.rest * args.done * kComplex, row = args.done * kComplex;
  for (Index p = 0; p < args.rest; ++p) {
    const double* twiddle = args.twiddles + p * 4;
    for (Index q = 0; q < args.done; ++q) {
      const double *a = args.x + p * row + q * kComplex, *b = a + half;
      double* y = args.y + 2 * p * row + q * kComplex;
#pragma omp simd
      for (Index i = 0; i < kFourierLines; ++i) {
        const double ar = a[i], ai = a[i + kFourierLines], br = b[i], bi = b[i + kFourierLines];
        y[i] = ar + br;
        y[i + kFourierLines] = ai + bi;
        StoreTwiddled(y + row, i, ar - br, ai - bi, twiddle + 2);
      }
    }
  }
}

void Radix4(const FourierPassArgs& args) {
  const Index quarter = args.rest * args.done * kComplex, row = args.done * kComplex;
  const double sign = args.sign;
  for (Index p = 0; p < args.rest; ++p) {
    const double* twiddle = args.twiddles + p * 8;
    for (Index q = 0; q < args.done; ++q) {
      const double *a = args.x + p * row + q * kComplex, *b = a + quarter, *c = b + quarter, *d = c + quarter;
      double* y = args.y + 4 * p * row + q * kComplex;
#pragma omp simd
      for (Index i = 0; i < kFourierLines; ++i) {
        const Index j = i + kFourierLines;
        const double sr = a[i] + c[i], si = a[j] + c[j], dr = a[i] - c[i], di = a[j] - c[j];
        const double tr = b[i] + d[i], ti = b[j] + d[j];
        // Times i or -i.
        const double qr = -sign * (b[j] - d[j]), qi = sign * (b[i] - d[i]);
        y[i] = sr + tr;
        y[j] = si + ti;
        StoreTwiddled(y + row, i, dr + qr, di + qi, twiddle + 2);
        StoreTwiddled(y + 2 * row, i, sr - tr, si - ti, twiddle + 4);
        StoreTwiddled(y + 3 * row, i, dr - qr, di - qi, twiddle + 6);
      }
    }
  }
}

// Any other radix, directly by the definition.
void AnyRadix(const FourierPassArgs& args) {
  const Index radix = args.radix, step = args.rest * args.done * kComplex, row = args.done * kComplex;
  for (Index p = 0; p < args.rest; ++p) {
    const double* twiddle = args.twiddles + p * 2 * radix;
    for (Index q = 0; q < args.done; ++q) {
      const double* x = args.x + p * row + q * kComplex;
      for (Index k = 0; k < radix; ++k) {
        alignas(64) double re[kFourierLines] = {}, im[kFourierLines] = {};
        Index root = 0;
        for (Index j = 0; j < radix; ++j) {
          const double *from = x + j * step, wr = args.roots[2 * root], wi = args.roots[2 * root + 1];
#pragma omp simd
          for (Index i = 0; i < kFourierLines; ++i) {
            re[i] += from[i] * wr - from[i + kFourierLines] * wi;
            im[i] += from[i] * wi + from[i + kFourierLines] * wr;
          }
          root = root + k < radix ? root + k : root + k - radix;
        }
        double* y = args.y + (radix * p + k) * row + q * kComplex;
#pragma omp simd
        for (Index i = 0; i < kFourierLines; ++i) StoreTwiddled(y, i, re[i], im[i], twiddle + 2 * k);
      }
    }
  }
}

}  // namespace

void FourierPass(const FourierPassArgs& args) {
  if (args.radix == 2) return Radix2(args);
  if (args.radix == 4) return Radix4(args);
  AnyRadix(args);
}

void FourierJoinHalves(const FourierHalvesArgs& args) {
  double* const z = args.elements;
  for (Index i = 0; i < kComplex; ++i) z[args.half * kComplex + i] = z[i];
  for (Index k = 0; 2 * k <= args.half; ++k) {
    double *x = z + k * kComplex, *y = z + (args.half - k) * kComplex;
    const double wr = args.twiddles[2 * k], wi = args.twiddles[2 * k + 1];
#pragma omp simd
    for (Index i = 0; i < kFourierLines; ++i) {
      const Index j = i + kFourierLines;
      const double even_r = (x[i] + y[i]) / 2, even_i = (x[j] - y[j]) / 2, odd_r = (x[j] + y[j]) / 2, odd_i = (y[i] - x[i]) / 2;
      const double turned_r = odd_r * wr - odd_i * wi, turned_i = odd_r * wi + odd_i * wr;
      x[i] = even_r + turned_r;
      x[j] = even_i + turned_i;
      y[i] = even_r - turned_r;
      y[j] = turned_i - even_i;
    }
  }
}

void FourierSplitHalves(const FourierHalvesArgs& args) {
  double *const z = args.elements, *const last = z + args.half * kComplex;
  // The imaginary parts of these two would only give imaginary results.
  for (Index i = kFourierLines; i < kComplex; ++i) z[i] = last[i] = 0;
  for (Index k = 0; 2 * k <= args.half; ++k) {
    double *x = z + k * kComplex, *y = z + (args.half - k) * kComplex;
    const double wr = args.twiddles[2 * k], wi = args.twiddles[2 * k + 1];
#pragma omp simd
    for (Index i = 0; i < kFourierLines; ++i) {
      const Index j = i + kFourierLines;
      const double even_r = x[i] + y[i], even_i = x[j] - y[j], turned_r = x[i] - y[i], turned_i = x[j] + y[j];
      const double odd_r = turned_r * wr + turned_i * wi, odd_i = turned_i * wr - turned_r * wi;
      x[i] = even_r - odd_i;
      x[j] = even_i + odd_r;
      y[i] = even_r + odd_i;
      y[j] = odd_r - even_i;
    }
  }
}

}  // namespace gradloom::GRADLOOM_ISA
