// Fourier transforms by their definition: DFT, STFT, and the weights that map spectra to mel bins.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "kernels/reference/families.h"
#include "kernels/reference/numbers.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

using Complex = std::complex<double>;

// exp(2 pi i k / n) for each k < n.
std::vector<Complex> Roots(int64_t n) {
  std::vector<Complex> roots;
  for (int64_t k = 0; k < n; ++k) roots.push_back(std::polar(1.0, 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n)));
  return roots;
}

// The sum over i of x[i] root^(+-k i), with n = roots.size().
Complex Transformed(const std::vector<Complex>& x, const std::vector<Complex>& roots, int64_t k, bool inverse) {
  const auto n = static_cast<int64_t>(roots.size());
  Complex sum = 0;
  int64_t at = 0;
  for (const Complex& value : x) {
    const Complex root = roots[static_cast<size_t>(at)];
    sum += value * (inverse ? root : std::conj(root));
    at = (at + k) % n;
  }
  return sum;
}

// (x [..., 1 or 2], length, axis): real or complex numbers along an axis, truncated or zero-padded to the length. onesided: the first half
// of the spectrum of real numbers; with inverse, real numbers from such a half.
void Dft(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  const int rank = from.rank(), axis = AxisOf(call, InputInts(call, in, 2, {-2})[0], rank);
  if (axis == rank - 1) throw Error(ErrorCode::kData, call.op + ": axis " + std::to_string(axis) + " holds real and imaginary parts");
  const bool inverse = call.attributes.Int("inverse", 0) != 0, onesided = call.attributes.Int("onesided", 0) != 0;
  const bool to_real = inverse && onesided;
  const std::vector<int64_t> given = InputInts(call, in, 1);
  const int64_t length = !given.empty() ? given[0] : to_real ? to[axis] : from[axis];
  if (length <= 0) throw Error(ErrorCode::kValue, call.op + ": a length of " + std::to_string(length));
  const std::vector<Complex> roots = Roots(length);
  const Numbers x = NumbersOf(call, in, 0);
  Numbers y(static_cast<size_t>(to.elements()));
  const int64_t parts = from[rank - 1], out_parts = to[rank - 1];
  const int64_t inner = Product(from, axis + 1, rank - 1), outer = Product(from, 0, axis);
  const int64_t half = length / 2 + 1, used = std::min(from[axis], to_real ? half : length);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      std::vector<Complex> line(static_cast<size_t>(to_real ? length : used));
      for (int64_t t = 0; t < used; ++t) {
        const auto at = static_cast<size_t>(((o * from[axis] + t) * inner + i) * parts);
        line[static_cast<size_t>(t)] = {x[at], parts > 1 ? x[at + 1] : 0.0};
      }
      // The second half of the spectrum of real numbers is the conjugate mirror image of the first.
      for (int64_t t = half; to_real && t < length; ++t) line[static_cast<size_t>(t)] = std::conj(line[static_cast<size_t>(length - t)]);
      for (int64_t k = 0; k < to[axis]; ++k) {
        const Complex sum = Transformed(line, roots, k, inverse) / (inverse ? static_cast<double>(length) : 1.0);
        const auto at = static_cast<size_t>(((o * to[axis] + k) * inner + i) * out_parts);
        y[at] = sum.real();
        if (out_parts > 1) y[at + 1] = sum.imag();
      }
    }
  }
  StoreNumbers(call, 0, y, out);
}

// (signal [batch, samples, 1 or 2], step, window, length) -> [batch, frames, bins, 2].
void Stft(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  const int64_t samples = from[1], parts = from.rank() > 2 ? from[2] : 1, step = InputInts(call, in, 1)[0];
  const Numbers x = NumbersOf(call, in, 0), window = Has(call.inputs, 2) ? NumbersOf(call, in, 2) : Numbers();
  const std::vector<int64_t> given = InputInts(call, in, 3);
  const int64_t length = !given.empty() ? given[0] : static_cast<int64_t>(window.size());
  if (length <= 0 || (!window.empty() && static_cast<int64_t>(window.size()) != length) || step <= 0)
    throw Error(ErrorCode::kValue, call.op + ": frames of " + std::to_string(length) + " samples, a window of " +
                                       std::to_string(window.size()) + ", steps of " + std::to_string(step));
  if (to[1] > 0 && (to[1] - 1) * step + length > samples) throw Error(ErrorCode::kShape, call.op + ": the last frame is past the signal");
  const std::vector<Complex> roots = Roots(length);
  Numbers y;
  y.reserve(static_cast<size_t>(to.elements()));
  std::vector<Complex> frame(static_cast<size_t>(length));
  for (int64_t row = 0; row < to[0] * to[1]; ++row) {
    for (int64_t t = 0; t < length; ++t) {
      const auto at = static_cast<size_t>((row / to[1] * samples + row % to[1] * step + t) * parts);
      frame[static_cast<size_t>(t)] = Complex(x[at], parts > 1 ? x[at + 1] : 0.0) * (window.empty() ? 1.0 : window[static_cast<size_t>(t)]);
    }
    for (int64_t k = 0; k < to[2]; ++k) {
      const Complex sum = Transformed(frame, roots, k, false);
      y.push_back(sum.real());
      y.push_back(sum.imag());
    }
  }
  StoreNumbers(call, 0, y, out);
}

// Triangles over the bins of a spectrum, equidistant on the mel scale.
void MelWeightMatrix(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& to = call.outputs[0].shape;
  const int64_t spectrum = to[0], bins = to[1];
  const double length = NumbersOf(call, in, 1)[0], rate = NumbersOf(call, in, 2)[0];
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double low = mel(NumbersOf(call, in, 3)[0]), high = mel(NumbersOf(call, in, 4)[0]);
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double at = low + static_cast<double>(i) * (high - low) / static_cast<double>(bins + 2);
    const double hertz = 700 * (std::pow(10, at / 2595) - 1);
    const double edge = std::floor((length + 1) * hertz / rate);
    // Also not a number, if the rate is 0.
    if (!(edge >= 0 && edge < static_cast<double>(spectrum)))
      throw Error(ErrorCode::kValue, call.op + ": a frequency past half the sample rate");
    edges.push_back(static_cast<int64_t>(edge));
  }
  Numbers weights(static_cast<size_t>(spectrum * bins), 0.0);
  for (int64_t i = 0; i < bins; ++i) {
    const int64_t left = edges[static_cast<size_t>(i)], centre = edges[static_cast<size_t>(i) + 1],
                  right = edges[static_cast<size_t>(i) + 2];
    const auto at = [&](int64_t bin) -> double& { return weights[static_cast<size_t>(bin * bins + i)]; };
    if (centre == left) at(centre) = 1;
    for (int64_t j = left; centre > left && j <= centre; ++j) at(j) = static_cast<double>(j - left) / static_cast<double>(centre - left);
    for (int64_t j = centre; j < right; ++j) at(j) = static_cast<double>(right - j) / static_cast<double>(right - centre);
  }
  StoreNumbers(call, 0, weights, out);
}

constexpr ReferenceKernel kKernels[] = {{"DFT", "", Dft}, {"MelWeightMatrix", "", MelWeightMatrix}, {"STFT", "", Stft}};

}  // namespace

std::span<const ReferenceKernel> ReferenceSignal() { return kKernels; }

}  // namespace gradloom
