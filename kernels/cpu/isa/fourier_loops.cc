#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

constexpr Index kComplex = 2 * kFourierLines;  // numbers per element: the real parts of all lines, then the imaginary ones

// Stores an output of a butterfly: (re + i im) times a twiddle factor, for one lane.
GRADLOOM_INLINE void Turned(double* y, Index lane, double re, double im, const double* turn) {
  y[lane] = re * turn[0] - im * turn[1];
  y[lane + kFourierLines] = re * turn[1] + im * turn[0];
}

void Halves(const FourierPassArgs& args) {
  const Index half = args.rest * args.done * kComplex, row = args.done * kComplex;
  for (Index p = 0; p < args.rest; ++p) {
    const double* turn = args.turns + p * 4;
    for (Index q = 0; q < args.done; ++q) {
      const double *a = args.x + p * row + q * kComplex, *b = a + half;
      double* y = args.y + 2 * p * row + q * kComplex;
#pragma omp simd
      for (Index i = 0; i < kFourierLines; ++i) {
        const double ar = a[i], ai = a[i + kFourierLines], br = b[i], bi = b[i + kFourierLines];
        y[i] = ar + br;
        y[i + kFourierLines] = ai + bi;
        Turned(y + row, i, ar - br, ai - bi, turn + 2);
      }
    }
  }
}

void Quarters(const FourierPassArgs& args) {
  const Index quarter = args.rest * args.done * kComplex, row = args.done * kComplex;
  const double sign = args.sign;
  for (Index p = 0; p < args.rest; ++p) {
    const double* turn = args.turns + p * 8;
    for (Index q = 0; q < args.done; ++q) {
      const double *a = args.x + p * row + q * kComplex, *b = a + quarter, *c = b + quarter, *d = c + quarter;
      double* y = args.y + 4 * p * row + q * kComplex;
#pragma omp simd
      for (Index i = 0; i < kFourierLines; ++i) {
        const Index j = i + kFourierLines;
        const double sr = a[i] + c[i], si = a[j] + c[j], dr = a[i] - c[i], di = a[j] - c[j];
        const double tr = b[i] + d[i], ti = b[j] + d[j];
        // A quarter turn.
        const double qr = -sign * (b[j] - d[j]), qi = sign * (b[i] - d[i]);
        y[i] = sr + tr;
        y[j] = si + ti;
        Turned(y + row, i, dr + qr, di + qi, turn + 2);
        Turned(y + 2 * row, i, sr - tr, si - ti, turn + 4);
        Turned(y + 3 * row, i, dr - qr, di - qi, turn + 6);
      }
    }
  }
}

// Any other number of parts, directly by the definition.
void Parts(const FourierPassArgs& args) {
  const Index parts = args.parts, part = args.rest * args.done * kComplex, row = args.done * kComplex;
  for (Index p = 0; p < args.rest; ++p) {
    const double* turn = args.turns + p * 2 * parts;
    for (Index q = 0; q < args.done; ++q) {
      const double* x = args.x + p * row + q * kComplex;
      for (Index k = 0; k < parts; ++k) {
        alignas(64) double re[kFourierLines] = {}, im[kFourierLines] = {};
        Index root = 0;
        for (Index j = 0; j < parts; ++j) {
          const double *from = x + j * part, wr = args.roots[2 * root], wi = args.roots[2 * root + 1];
#pragma omp simd
          for (Index i = 0; i < kFourierLines; ++i) {
            re[i] += from[i] * wr - from[i + kFourierLines] * wi;
            im[i] += from[i] * wi + from[i + kFourierLines] * wr;
          }
          root = root + k < parts ? root + k : root + k - parts;
        }
        double* y = args.y + (parts * p + k) * row + q * kComplex;
#pragma omp simd
        for (Index i = 0; i < kFourierLines; ++i) Turned(y, i, re[i], im[i], turn + 2 * k);
      }
    }
  }
}

}  // namespace

void FourierPass(const FourierPassArgs& args) {
  if (args.parts == 2) return Halves(args);
  if (args.parts == 4) return Quarters(args);
  Parts(args);
}

}  // namespace gradloom::GRADLOOM_ISA
