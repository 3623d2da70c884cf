// Sums of exponentials in one pass, without overflow.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/cuda/launch.cuh"

namespace gradloom::cuda {

// The difference of two numbers, exponentiated.
struct Exp {
  template <typename A>
  GRADLOOM_DEVICE A operator()(A x, A shift) const {
    return ::exp(x - shift);
  }
};

// The same with fewer instructions, for 16-bit elements: relative errors of 2^-22 + |x - shift| * 2^-23, and 0 in place of subnormal
// numbers.
struct FastExp {
  GRADLOOM_DEVICE float operator()(float x, float shift) const {
#ifdef __CUDA_ARCH__
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"((x - shift) * 1.4426950408889634F));
    return power;
#else
    return ::exp(x - shift);
#endif
  }
};

// The largest of several numbers x and the sum of exp(x - largest): Milakov and Gimelshein, "Online normalizer calculation for softmax",
// 2018. A NaN makes the sum NaN and is never the largest.
template <typename A, typename E = Exp>
struct ExpSum {
  A largest = -std::numeric_limits<A>::infinity();
  A sum = 0;

  GRADLOOM_DEVICE void Add(A x) {
    if (x > largest) {
      sum = sum * E{}(largest, x) + A(1);
      largest = x;
    } else if (x == largest) {
      // The difference of two equal infinities counts as 0; exp(-infinity) adds nothing.
      sum += x == -std::numeric_limits<A>::infinity() ? A(0) : A(1);
    } else {
      sum += E{}(x, largest);
    }
  }

  // Adds several numbers with at most one rescaling.
  template <int kSize>
  GRADLOOM_DEVICE void AddAll(const A (&x)[kSize]) {
    A most = largest;
    for (int k = 0; k < kSize; ++k) most = static_cast<A>(::fmax(x[k], most));
    if (most - most != 0) {  // infinite; fmax leaves out NaN
      for (int k = 0; k < kSize; ++k) Add(x[k]);
      return;
    }
    if (most > largest) {
      sum *= E{}(largest, most);
      largest = most;
    }
    for (int k = 0; k < kSize; ++k) sum += E{}(x[k], most);
  }

  // The sum as the divisor of a softmax: NaN if an element is +infinity, which has no finite share.
  GRADLOOM_DEVICE A Divisor() const { return largest == std::numeric_limits<A>::infinity() ? std::numeric_limits<A>::quiet_NaN() : sum; }
};

// Joins the parts of all threads of a group with fewer exponentials than by JoinExpSums.
template <typename Group, typename A, typename E>
GRADLOOM_DEVICE ExpSum<A, E> JoinedOver(const Group& group, const ExpSum<A, E>& part) {
  const A largest = group.Reduce(part.largest, Largest{});
  return {largest, group.Reduce(part.largest == largest ? part.sum : part.sum * E{}(part.largest, largest), Sum{})};
}

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
