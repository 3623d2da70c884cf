// Deterministic floating-point sums whose terms arrive in any order.
//
// The elements that a point contributes to depend on data, so points add to elements with atomics; they add integers, whose sum does not
// depend on the order. The unit of a plane is chosen so that the largest possible sum has 61 bits: the error of a term is below the plane's
// largest term times 2^(bits - 61). float64 uses a second integer for the remainder of each term.
#pragma once

#include <cmath>

#include "kernels/cuda/atomics.cuh"
#include "kernels/cuda/launch.cuh"

namespace gradloom::cuda {

GRADLOOM_DEVICE bool IsFinite(double x) { return x - x == 0; }

// The number of integers per sum for an element type.
template <typename T>
inline constexpr int kSumWords = std::is_same_v<T, double> ? 2 : 1;

struct PlaneSums {
  int64_t* sums;     // [planes, elements, words]
  double* units;     // [planes]: 1 / unit, a power of two; NaN if some term is not finite
  int64_t elements;  // per plane
  int bits;          // at most 2^bits terms are added to an element
  double finer;      // units of the second integer per unit of the first

  // `terms` is the largest number of terms of an element.
  PlaneSums(void* sum_memory, void* unit_memory, int64_t plane_elements, int64_t terms)
      : sums(static_cast<int64_t*>(sum_memory)), units(static_cast<double*>(unit_memory)), elements(plane_elements), bits(1) {
    for (; terms > 1; terms = (terms + 1) / 2) ++bits;
    finer = std::ldexp(1.0, 61 - bits);
  }

  // Adds a term that is at most as large as those given to BeginSums. `unit` is units[plane].
  template <int kWords>
  GRADLOOM_DEVICE void Add(int64_t plane, int64_t element, double term, double unit) const {
    double rest = term * unit;
    for (int word = 0; word < kWords; ++word) {
      const int64_t whole = ::llrint(rest);
      AtomicAdd(sums + (plane * elements + element) * kWords + word, whole);
      rest = (rest - static_cast<double>(whole)) * finer;
    }
  }

  template <int kWords>
  GRADLOOM_DEVICE double Total(int64_t plane, int64_t element) const {
    const int64_t* const from = sums + (plane * elements + element) * kWords;
    double sum = static_cast<double>(from[0]);
    if (kWords == 2) sum += static_cast<double>(from[kWords - 1]) / finer;
    return sum / units[plane];
  }
};

// Zeroes the sums and chooses the units of the planes, for terms up to the largest |term(plane, k)|, k < count.
template <int kWords, typename Term>
void BeginSums(const PlaneSums& to, int64_t planes, int64_t count, const Term& term, cudaStream_t stream) {
  const int64_t n = planes * to.elements * kWords;
  int64_t* const sums = to.sums;
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) { sums[i] = 0; });
  ForEachRow(
      planes, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t plane) {
        double largest = 0;
        for (int64_t k = block.thread(); k < count; k += block.threads()) {
          const double size = ::fabs(term(plane, k));
          largest = IsFinite(size) ? Largest()(largest, size) : HUGE_VAL;
        }
        largest = block.Reduce(largest, Largest());
        if (block.thread() != 0) return;
        const bool finite = IsFinite(largest);
        int exponent = 0;
        if (finite) ::frexp(largest, &exponent);
        to.units[plane] = finite ? ::ldexp(1.0, exponent < -900 ? 900 : 61 - to.bits - exponent) : largest - largest;
      });
}

}  // namespace gradloom::cuda
