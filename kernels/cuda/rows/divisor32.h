// Division of 32-bit numbers by a number known on the host, without an instruction that divides, which GPUs do not have.
#pragma once

#include <cstdint>

namespace gradloom::cuda {

// n / d for 0 <= n < 2^31 and 0 < d < 2^31, as a product and a shift: T. Granlund and P. L. Montgomery, "Division by invariant integers
// using multiplication" (1994).
class Divisor32 {
 public:
  constexpr explicit Divisor32(int64_t d) : d_(static_cast<int32_t>(d)) {
    while ((int64_t{1} << shift_) < d) ++shift_;
    factor_ = static_cast<uint32_t>(((((int64_t{1} << shift_) - d) << 32) / d) + 1);
  }

  constexpr int32_t Quotient(int32_t n) const {
    const uint32_t u = static_cast<uint32_t>(n), high = static_cast<uint32_t>((static_cast<uint64_t>(u) * factor_) >> 32);
    return static_cast<int32_t>((high + u) >> shift_);
  }

  // Replaces n by n / d and returns n % d.
  constexpr int32_t Split(int32_t& n) const {
    const int32_t quotient = Quotient(n), rest = n - quotient * d_;
    n = quotient;
    return rest;
  }

 private:
  int32_t d_;
  uint32_t factor_ = 1, shift_ = 0;
};

}  // namespace gradloom::cuda
