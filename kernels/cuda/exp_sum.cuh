// Sums of exponentials in one pass, without overflow.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/cuda/launch.cuh"

namespace gradloom::cuda {

// The largest of several numbers x and the sum of exp(x - largest): Milakov and Gimelshein, "Online normalizer calculation for softmax",
// 2018. A NaN makes the sum NaN and is never the largest.
template <typename A>
struct ExpSum {
  A largest = -std::numeric_limits<A>::infinity();
  A sum = 0;

  GRADLOOM_DEVICE void Add(A x) {
    if (x > largest) {
      sum = sum * ::exp(largest - x) + A(1);
      largest = x;
    } else if (x == largest) {
      // The difference of two equal infinities counts as 0; exp(-infinity) adds nothing.
      sum += x == -std::numeric_limits<A>::infinity() ? A(0) : A(1);
    } else {
      sum += ::exp(x - largest);
    }
  }

  // Adds several numbers with at most one rescaling.
  template <int kSize>
  GRADLOOM_DEVICE void AddAll(const A (&x)[kSize]) {
    A most = largest;
    for (int k = 0; k < kSize; ++k) most = x[k] > most ? x[k] : most;
    if (most - most != 0) {  // infinite
      for (int k = 0; k < kSize; ++k) Add(x[k]);
      return;
    }
    if (most > largest) {
      sum *= ::exp(largest - most);
      largest = most;
    }
    for (int k = 0; k < kSize; ++k) sum += ::exp(x[k] - most);
  }

  // The sum as the divisor of a softmax: NaN if an element is +infinity, which has no finite share.
  GRADLOOM_DEVICE A Divisor() const { return largest == std::numeric_limits<A>::infinity() ? std::numeric_limits<A>::quiet_NaN() : sum; }
};

struct JoinExpSums {
  template <typename A>
  GRADLOOM_DEVICE ExpSum<A> operator()(const ExpSum<A>& a, const ExpSum<A>& b) const {
    const A largest = a.largest > b.largest ? a.largest : b.largest;
    return {largest, Scaled(a, largest) + Scaled(b, largest)};
  }

 private:
  template <typename A>
  GRADLOOM_DEVICE static A Scaled(const ExpSum<A>& part, A largest) {
    return part.largest == largest ? part.sum : part.sum * ::exp(part.largest - largest);
  }
};

}  // namespace gradloom::cuda
