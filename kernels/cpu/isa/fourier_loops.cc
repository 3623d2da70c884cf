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

// The same for all lanes.
template <typename T>
GRADLOOM_INLINE void StoreTwiddled(double* y, const T& re, const T& im, const double* twiddle) {
  *reinterpret_cast<T*>(y) = re * twiddle[0] - im * twiddle[1];
  *reinterpret_cast<T*>(y + kFourierLines) = re * twiddle[1] + im * twiddle[0];
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

// x[1] + x[2] has the roots' real part in both results, and x[1] - x[2] their imaginary parts.
void Radix3(const FourierPassArgs& args) {
  const Index third = args.rest * args.done * kComplex, row = args.done * kComplex;
  const double cosine = args.roots[2], sine = args.roots[3];
  for (Index p = 0; p < args.rest; ++p) {
    const double* twiddle = args.twiddles + p * 6;
    for (Index q = 0; q < args.done; ++q) {
      const double *a = args.x + p * row + q * kComplex, *b = a + third, *c = b + third;
      double* y = args.y + 3 * p * row + q * kComplex;
#pragma omp simd
      for (Index i = 0; i < kFourierLines; ++i) {
        const Index j = i + kFourierLines;
        const double sr = b[i] + c[i], si = b[j] + c[j], dr = sine * (b[i] - c[i]), di = sine * (b[j] - c[j]);
        const double mr = a[i] + cosine * sr, mi = a[j] + cosine * si;
        y[i] = a[i] + sr;
        y[j] = a[j] + si;
        StoreTwiddled(y + row, i, mr - di, mi + dr, twiddle + 2);
        StoreTwiddled(y + 2 * row, i, mr + di, mi - dr, twiddle + 4);
      }
    }
  }
}

// Likewise with x[1] and x[4], x[2] and x[3].
void Radix5(const FourierPassArgs& args) {
  const Index fifth = args.rest * args.done * kComplex, row = args.done * kComplex;
  const double cos1 = args.roots[2], sin1 = args.roots[3], cos2 = args.roots[4], sin2 = args.roots[5];
  for (Index p = 0; p < args.rest; ++p) {
    const double* twiddle = args.twiddles + p * 10;
    for (Index q = 0; q < args.done; ++q) {
      const double *a = args.x + p * row + q * kComplex, *b = a + fifth, *c = b + fifth, *d = c + fifth, *e = d + fifth;
      double* y = args.y + 5 * p * row + q * kComplex;
#pragma omp simd
      for (Index i = 0; i < kFourierLines; ++i) {
        const Index j = i + kFourierLines;
        const double s1r = b[i] + e[i], s1i = b[j] + e[j], d1r = b[i] - e[i], d1i = b[j] - e[j];
        const double s2r = c[i] + d[i], s2i = c[j] + d[j], d2r = c[i] - d[i], d2i = c[j] - d[j];
        const double m1r = a[i] + cos1 * s1r + cos2 * s2r, m1i = a[j] + cos1 * s1i + cos2 * s2i;
        const double m2r = a[i] + cos2 * s1r + cos1 * s2r, m2i = a[j] + cos2 * s1i + cos1 * s2i;
        const double t1r = sin1 * d1r + sin2 * d2r, t1i = sin1 * d1i + sin2 * d2i;
        const double t2r = sin2 * d1r - sin1 * d2r, t2i = sin2 * d1i - sin1 * d2i;
        y[i] = a[i] + s1r + s2r;
        y[j] = a[j] + s1i + s2i;
        StoreTwiddled(y + row, i, m1r - t1i, m1i + t1r, twiddle + 2);
        StoreTwiddled(y + 2 * row, i, m2r - t2i, m2i + t2r, twiddle + 4);
        StoreTwiddled(y + 3 * row, i, m2r + t2i, m2i - t2r, twiddle + 6);
        StoreTwiddled(y + 4 * row, i, m1r + t1i, m1i - t1r, twiddle + 8);
      }
    }
  }
}

// All lines of a part of an element. Its address may be any that a double has.
using Lanes = double __attribute__((vector_size(kFourierLines * sizeof(double)), aligned(alignof(double)), may_alias));

const Lanes& Part(const double* at) { return *reinterpret_cast<const Lanes*>(at); }
Lanes& Part(double* at) { return *reinterpret_cast<Lanes*>(at); }

// Any odd radix. Results k and radix - k share their sums: x[j] + x[radix - j] with the roots' real parts, and x[j] - x[radix - j] with
// their imaginary parts.
void OddRadix(const FourierPassArgs& args) {
  const Index radix = args.radix, half = radix / 2, step = args.rest * args.done * kComplex, row = args.done * kComplex;
  Lanes sum_r[kLargestFourierRadix / 2], sum_i[kLargestFourierRadix / 2], diff_r[kLargestFourierRadix / 2],
      diff_i[kLargestFourierRadix / 2];
  for (Index p = 0; p < args.rest; ++p) {
    const double* twiddle = args.twiddles + p * 2 * radix;
    for (Index q = 0; q < args.done; ++q) {
      const double* x = args.x + p * row + q * kComplex;
      double* y = args.y + radix * p * row + q * kComplex;
      const Lanes first_r = Part(x), first_i = Part(x + kFourierLines);
      Lanes all_r = first_r, all_i = first_i;
      for (Index j = 1; j <= half; ++j) {
        const double *a = x + j * step, *b = x + (radix - j) * step;
        sum_r[j - 1] = Part(a) + Part(b);
        sum_i[j - 1] = Part(a + kFourierLines) + Part(b + kFourierLines);
        diff_r[j - 1] = Part(a) - Part(b);
        diff_i[j - 1] = Part(a + kFourierLines) - Part(b + kFourierLines);
        all_r += sum_r[j - 1];
        all_i += sum_i[j - 1];
      }
      Part(y) = all_r;
      Part(y + kFourierLines) = all_i;
      for (Index k = 1; k <= half; ++k) {
        Lanes cos_r = first_r, cos_i = first_i, sin_r = {}, sin_i = {};
        for (Index j = 0, root = k; j < half; ++j) {
          const double cosine = args.roots[2 * root], sine = args.roots[2 * root + 1];
          cos_r += cosine * sum_r[j];
          cos_i += cosine * sum_i[j];
          sin_r += sine * diff_r[j];
          sin_i += sine * diff_i[j];
          root = root + k < radix ? root + k : root + k - radix;
        }
        StoreTwiddled(y + k * row, cos_r - sin_i, cos_i + sin_r, twiddle + 2 * k);
        StoreTwiddled(y + (radix - k) * row, cos_r + sin_i, cos_i - sin_r, twiddle + 2 * (radix - k));
      }
    }
  }
}

}  // namespace

void FourierPass(const FourierPassArgs& args) {
  if (args.radix == 2) return Radix2(args);
  if (args.radix == 3) return Radix3(args);
  if (args.radix == 4) return Radix4(args);
  if (args.radix == 5) return Radix5(args);
  OddRadix(args);
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
