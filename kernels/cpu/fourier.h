// Fourier transforms of several lines at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/isa/loops.h"

namespace gradloom {

// The float64 transform of kFourierLines lines of `length` complex numbers, which are interleaved. It is not scaled in either direction.
// Its time is O(length log length) for every length: one with a large prime factor is a convolution (Bluestein).
class Fourier {
 public:
  Fourier(int64_t length, bool inverse);
  ~Fourier();

  int64_t length() const { return length_; }
  // The size in doubles of each of the two buffers that suffice for transforms up to this length.
  static int64_t Numbers(int64_t longest);
  // `lines` and `work` have Numbers(length) elements each, ordered as in FourierPassArgs. Returns the buffer with the result, which is one
  // of the two.
  double* Run(const Loops& loops, double* lines, double* work) const;

 private:
  struct Pass {
    FourierPassArgs args;
    std::vector<double> twiddles, roots;
  };
  struct Chirp;

  double* Convolve(const Loops& loops, double* lines, double* work) const;

  int64_t length_;
  std::vector<Pass> passes_;
  std::unique_ptr<Chirp> chirp_;  // instead of passes
};

// The float64 transform of kFourierLines lines of an even number of real numbers to the first half of their spectrum, or back, not scaled
// either, by a complex transform of half the length. Real number t of line l is at kFourierLines t + l, and the length / 2 + 1 elements of
// a spectrum are ordered as in FourierPassArgs.
class RealFourier {
 public:
  RealFourier(int64_t length, bool inverse);

  int64_t length() const { return 2 * halves_.length(); }
  // `lines` and `work` have Fourier::Numbers(length) elements each. Returns the buffer with the result, which is one of the two.
  double* Run(const Loops& loops, double* lines, double* work) const;

 private:
  const bool inverse_;
  const Fourier halves_;
  std::vector<double> twiddles_;
};

}  // namespace gradloom
