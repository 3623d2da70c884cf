// Fourier transforms of many lines at once.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/isa/loops.h"

namespace gradloom {

// The transform of lines of `length` complex numbers, kFourierLines of them next to each other, unscaled in both directions, in float64.
class Fourier {
 public:
  Fourier(int64_t length, bool inverse);

  int64_t length() const { return length_; }
  // Of each of the two buffers of a transform.
  static int64_t Numbers(int64_t length) { return 2 * kFourierLines * length; }
  // `lines` and `work`: Numbers(length) each, elements as FourierPassArgs has them. The result is in what is returned, one of the two.
  double* Run(const Loops& loops, double* lines, double* work) const;

 private:
  struct Pass {
    FourierPassArgs args;
    std::vector<double> turns, roots;
  };

  int64_t length_;
  std::vector<Pass> passes_;
};

}  // namespace gradloom
