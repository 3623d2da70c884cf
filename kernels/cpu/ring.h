// Sums of products along an axis, c[v] = sum of x[v + k] w[k], by polynomial products: the coefficients of x(z) w(1 / z) modulo z^n + 1 are
// these sums if x and w are short enough. For real coefficients, the values at the roots of z^(n / 2) = i suffice, which are Fourier
// transforms of n / 2 complex numbers ("right-angle" convolution: R. Crandall and B. Fagin, "Discrete weighted transforms and large-integer
// arithmetic", 1994).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/isa/loops.h"

namespace gradloom {

// The ring of polynomials with n = 2 * half coefficients. Polynomials are stored in tuples of as many lines as a vector has lanes: `half`
// elements, each with coefficient j of all lines followed by coefficient j + half.
class Ring {
 public:
  explicit Ring(int64_t half);
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // The smallest half >= `wanted` with fast transforms.
  static int64_t HalfFor(int64_t wanted);
  static int64_t Passes(int64_t half);

  int64_t half() const { return half_; }
  int64_t lines() const { return loops_.ring_lines; }
  // Floats from one tuple of lines to the next, including padding: powers of two would compete for the same cache sets.
  int64_t floats() const { return FloatsOf(half_); }
  static int64_t FloatsOf(int64_t half) { return (half + 1) * 2 * BestLoops().ring_lines; }

  // ring = the values of the polynomials whose coefficients from `place` on are those of `count` lines: `length` each, `stride` apart, in
  // reverse order if `reversed`. All other coefficients, and those of further lines, are zero.
  void Load(const float* from, int64_t stride, int64_t count, int64_t length, int64_t place, bool reversed, float* ring) const;

  // Stores the first `length` coefficients of `count` lines, whose values are in `ring`, which is overwritten. Adds bias[line] unless bias
  // is null.
  void Store(float* ring, int64_t count, int64_t length, const float* bias, float* to, int64_t stride) const;

 private:
  const int64_t half_;
  const Loops& loops_;
  std::vector<RingPass> passes_;
  std::vector<float> twiddles_;
};

}  // namespace gradloom
