// Sums of products along an axis, c[v] = sum of x[v + k] w[k], by polynomials: x(z) w(1 / z) modulo z^n + 1, whose coefficients are the
// sums wherever x and w are short enough. Values at the roots of z^(n / 2) = i are enough for real coefficients, and are what Fourier
// transforms of n / 2 complex numbers give ("right-angle" convolution: R. Crandall and B. Fagin, "Discrete weighted transforms and
// large-integer arithmetic", 1994).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/isa/loops.h"

namespace gradloom {

// The ring of polynomials of n = 2 * half coefficients, and how those of as many lines as a vector has lanes lie in memory: `half`
// elements, each the coefficients j of all lines, then the coefficients j + half.
class Ring {
 public:
  explicit Ring(int64_t half);
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // The least half of at least `wanted` that transforms are fast for.
  static int64_t HalfFor(int64_t wanted);
  static int64_t Passes(int64_t half);

  int64_t half() const { return half_; }
  int64_t lines() const { return loops_.ring_lines; }
  // Floats from one tuple of lines to the next: some more than they have, since powers of two would lie in the same sets of the caches.
  int64_t floats() const { return FloatsOf(half_); }
  static int64_t FloatsOf(int64_t half) { return (half + 1) * 2 * BestLoops().ring_lines; }

  // ring = the values of polynomials whose coefficients from `place` on are those of `count` lines, `length` each, `stride` apart, from
  // the last to the first where `reversed`; all others, and those of further lines, are zero.
  void Load(const float* from, int64_t stride, int64_t count, int64_t length, int64_t place, bool reversed, float* ring) const;

  // The first `length` coefficients of `count` lines, of which `ring` has the values; it is overwritten. They are added to bias[line]
  // where there is one.
  void Store(float* ring, int64_t count, int64_t length, const float* bias, float* to, int64_t stride) const;

 private:
  const int64_t half_;
  const Loops& loops_;
  std::vector<RingPass> passes_;
  std::vector<float> turns_;
};

}  // namespace gradloom
