#include "kernels/cpu/fourier.h"

#include <algorithm>
#include <bit>
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

// A pass takes time in proportion to its radix. Beyond this one, a convolution by transforms of powers of two is faster.
constexpr int64_t kLargestRadix = kLargestFourierRadix;

// The length of these transforms: no product of the convolution may wrap around to a result that is read.
int64_t ConvolutionLength(int64_t length) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * length - 1))); }

bool HasLargePrimeFactor(int64_t n) {
  for (int64_t left = n; left > 1;) {
    const int64_t radix = NextRadix(left);
    if (radix > kLargestRadix) return true;
    left /= radix;
  }
  return false;
}

void AddTwiddle(std::vector<double>& to, int64_t k, int64_t n, int sign) {
  const double angle = sign * 2 * std::numbers::pi * static_cast<double>(k % n) / static_cast<double>(n);
  to.push_back(std::cos(angle));
  to.push_back(std::sin(angle));
}

// Multiplies element t of all lines by factor t, for the first `count` elements.
void Multiply(double* elements, const std::vector<double>& factors, int64_t count) {
  for (int64_t t = 0; t < count; ++t, elements += 2 * kFourierLines) {
    const double re = factors[static_cast<size_t>(2 * t)], im = factors[static_cast<size_t>(2 * t + 1)];
    for (int64_t line = 0; line < kFourierLines; ++line) {
      const double a = elements[line], b = elements[line + kFourierLines];
      elements[line] = a * re - b * im;
      elements[line + kFourierLines] = a * im + b * re;
    }
  }
}

}  // namespace

// With w = e^(sign pi i / n), j k = (j^2 + k^2 - (k - j)^2) / 2 makes of the transform
//   y[k] = sum over j of x[j] w^(2 j k) = w^(k^2) sum over j of (x[j] w^(j^2)) w^(-(k - j)^2),
// a convolution with a fixed sequence (L. Bluestein, "A linear filtering approach to the computation of discrete Fourier transform", 1970).
struct Fourier::Chirp {
  Chirp(int64_t length, int sign) : padded(ConvolutionLength(length)), forward(padded, false), backward(padded, true) {
    // k^2 modulo 2 n, so that angles stay exact: (k + 1)^2 = k^2 + 2 k + 1.
    for (int64_t k = 0, square = 0; k < length; ++k) {
      AddTwiddle(factors, square, 2 * length, sign);
      square = (square + 2 * k + 1) % (2 * length);
    }
    std::vector<double> lines(static_cast<size_t>(Numbers(padded))), work(lines.size());
    for (int64_t k = 0; k < length; ++k) {
      for (const int64_t t : {k, (padded - k) % padded}) {
        lines[static_cast<size_t>(2 * kFourierLines * t)] = factors[static_cast<size_t>(2 * k)];
        lines[static_cast<size_t>(2 * kFourierLines * t + kFourierLines)] = -factors[static_cast<size_t>(2 * k + 1)];
      }
    }
    const double* const transformed = forward.Run(BestLoops(), lines.data(), work.data());
    for (int64_t t = 0; t < padded; ++t) {
      for (const int64_t part : {int64_t{0}, int64_t{kFourierLines}})
        spectrum.push_back(transformed[2 * kFourierLines * t + part] / static_cast<double>(padded));
    }
  }

  int64_t padded;
  Fourier forward, backward;
  std::vector<double> factors;   // [length] w^(k^2)
  std::vector<double> spectrum;  // [padded] the transform of w^(-k^2), scaled for the way back
};

Fourier::Fourier(int64_t length, bool inverse) : length_(length) {
  const int sign = inverse ? 1 : -1;
  if (HasLargePrimeFactor(length)) {
    chirp_ = std::make_unique<Chirp>(length, sign);
    return;
  }
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

Fourier::~Fourier() = default;

int64_t Fourier::Numbers(int64_t longest) { return 2 * kFourierLines * (longest > kLargestRadix ? ConvolutionLength(longest) : longest); }

double* Fourier::Convolve(const Loops& loops, double* lines, double* work) const {
  const auto element = [](double* of, int64_t t) { return of + 2 * kFourierLines * t; };
  Multiply(lines, chirp_->factors, length_);
  std::fill(element(lines, length_), element(lines, chirp_->padded), 0.0);
  double* const spectrum = chirp_->forward.Run(loops, lines, work);
  Multiply(spectrum, chirp_->spectrum, chirp_->padded);
  double* const result = chirp_->backward.Run(loops, spectrum, spectrum == lines ? work : lines);
  Multiply(result, chirp_->factors, length_);
  return result;
}

double* Fourier::Run(const Loops& loops, double* lines, double* work) const {
  if (chirp_) return Convolve(loops, lines, work);
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

RealFourier::RealFourier(int64_t length, bool inverse) : inverse_(inverse), halves_(length / 2, inverse) {
  for (int64_t k = 0; k <= length / 4; ++k) AddTwiddle(twiddles_, k, length, -1);
}

double* RealFourier::Run(const Loops& loops, double* lines, double* work) const {
  FourierHalvesArgs args{.half = halves_.length(), .twiddles = twiddles_.data(), .elements = lines};
  if (inverse_) loops.fourier_split_halves(args);
  double* const result = halves_.Run(loops, lines, work);
  args.elements = result;
  if (!inverse_) loops.fourier_join_halves(args);
  return result;
}

}  // namespace gradloom
