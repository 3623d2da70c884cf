#include "kernels/cpu/fourier.h"

#include <cmath>
#include <numbers>
#include <utility>

namespace gradloom {
namespace {

// The radix of the next pass: 4 if possible, which has its own butterfly, else the smallest prime factor.
int64_t NextRadix(int64_t n) {
  if (n % 4 == 0) return 4;
  for (int64_t prime = 2; prime * prime <= n; ++prime) {
    if (n % prime == 0) return prime;
  }
  return n;
}

void AddTwiddle(std::vector<double>& to, int64_t k, int64_t n, int sign) {
  const double angle = sign * 2 * std::numbers::pi * static_cast<double>(k % n) / static_cast<double>(n);
  to.push_back(std::cos(angle));
  to.push_back(std::sin(angle));
}

}  // namespace

Fourier::Fourier(int64_t length, bool inverse) : length_(length) {
  const int sign = inverse ? 1 : -1;
  for (int64_t done = 1; done < length;) {
    const int64_t left = length / done, radix = NextRadix(left), rest = left / radix;
    Pass pass{.args = {.radix = radix, .done = done, .rest = rest, .sign = static_cast<double>(sign)}, .twiddles = {}, .roots = {}};
    for (int64_t p = 0; p < rest; ++p) {
      for (int64_t k = 0; k < radix; ++k) AddTwiddle(pass.twiddles, p * k, left, sign);
    }
    for (int64_t j = 0; j < radix; ++j) AddTwiddle(pass.roots, j, radix, sign);
    passes_.push_back(std::move(pass));
    done *= radix;
  }
}

double* Fourier::Run(const Loops& loops, double* lines, double* work) const {
  for (const Pass& pass : passes_) {
    FourierPassArgs args = pass.args;
    args.twiddles = pass.twiddles.data();
    args.roots = pass.roots.data();
    args.x = lines;
    args.y = work;
    loops.fourier_pass(args);
    std::swap(lines, work);
  }
  return lines;
}

}  // namespace gradloom
