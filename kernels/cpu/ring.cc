#include "kernels/cpu/ring.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gradloom {
namespace {

// The radices of the passes: fours, then a two and a three if present.
std::vector<int64_t> RadicesOf(int64_t half) {
  std::vector<int64_t> radices;
  for (const int64_t radix : {4, 2, 3}) {
    for (; half % radix == 0; half /= radix) radices.push_back(radix);
  }
  return radices;
}

}  // namespace

int64_t Ring::HalfFor(int64_t wanted) {
  int64_t half = 4;
  while (half < wanted) half = half % 3 == 0 ? half / 3 * 4 : half / 2 * 3;
  return half;
}

int64_t Ring::Passes(int64_t half) { return static_cast<int64_t>(RadicesOf(half).size()); }

Ring::Ring(int64_t half) : half_(half), loops_(BestLoops()) {
  // The angles of the value that z^span equals in each block.
  std::vector<double> angles = {std::numbers::pi / 2};
  std::vector<size_t> firsts;
  int64_t span = half;
  for (const int64_t radix : RadicesOf(half)) {
    span /= radix;
    passes_.push_back({radix, static_cast<Index>(angles.size()), span, nullptr});
    firsts.push_back(twiddles_.size());
    std::vector<double> next;
    for (const double angle : angles) {
      const auto p = static_cast<double>(radix);
      for (int64_t q = 1; q < radix; ++q) {
        twiddles_.push_back(static_cast<float>(std::cos(angle / p * static_cast<double>(q))));
        twiddles_.push_back(static_cast<float>(std::sin(angle / p * static_cast<double>(q))));
      }
      for (int64_t q = 0; q < radix; ++q) next.push_back((angle + 2 * std::numbers::pi * static_cast<double>(q)) / p);
    }
    angles = std::move(next);
  }
  for (size_t i = 0; i < passes_.size(); ++i) passes_[i].twiddles = twiddles_.data() + firsts[i];
}

void Ring::Load(const float* from, int64_t stride, int64_t count, int64_t length, int64_t place, bool reversed, float* ring) const {
  const int64_t element = 2 * lines();
  std::fill_n(ring, half_ * element, 0.0f);
  if (length == 0) return;
  // The two halves of the coefficients are stored separately.
  const auto put = [&](int64_t begin, int64_t end, float* to) {
    if (begin >= end) return;
    const int64_t n = end - begin;
    if (reversed) {
      loops_.transpose(from + (length - (end - place)), stride, to + (n - 1) * element, -element, n, count);
    } else {
      loops_.transpose(from + (begin - place), stride, to, element, n, count);
    }
  };
  const int64_t end = place + length, low = std::min(end, half_), high = std::max(place, half_);
  put(place, low, ring + place * element);
  put(high, end, ring + (high - half_) * element + lines());
  loops_.ring_forward(passes_.data(), static_cast<Index>(passes_.size()), ring);
}

void Ring::Store(float* ring, int64_t count, int64_t length, const float* bias, float* to, int64_t stride) const {
  const int64_t element = 2 * lines();
  loops_.ring_backward(passes_.data(), static_cast<Index>(passes_.size()), 1.0f / static_cast<float>(half_), ring);
  const int64_t low = std::min(length, half_);
  loops_.transpose(ring, element, to, stride, count, low);
  if (length > low) loops_.transpose(ring + lines(), element, to + low, stride, count, length - low);
  for (int64_t line = 0; line < count && bias != nullptr; ++line) {
    for (int64_t i = 0; i < length; ++i) to[line * stride + i] += bias[line];
  }
}

}  // namespace gradloom
