#include "kernels/reference/grid_taps.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr double kCubicA = -0.75;

// x reflected at `low` and `high` until it lies between them; `sign` changes with each reflection.
double Reflected(double x, double low, double high, double& sign) {
  const double range = high - low;
  if (range <= 0) {
    sign = 0;
    return low;
  }
  const bool below = x<low, above = x> high;
  if (!below && !above) return x;
  const double distance = below ? low - x : x - high;
  const double turns = std::floor(distance / range), rest = distance - turns * range;
  const bool even = std::fmod(turns, 2) == 0;
  sign = even ? -sign : sign;
  return below == even ? low + rest : high - rest;
}

double CubicNear(double t) { return ((kCubicA + 2) * t - (kCubicA + 3)) * t * t + 1; }                   // t in [0, 1]
double CubicFar(double t) { return ((kCubicA * t - 5 * kCubicA) * t + 8 * kCubicA) * t - 4 * kCubicA; }  // t in [1, 2]
double CubicNearSlope(double t) { return (3 * (kCubicA + 2) * t - 2 * (kCubicA + 3)) * t; }
double CubicFarSlope(double t) { return (3 * kCubicA * t - 10 * kCubicA) * t + 8 * kCubicA; }

}  // namespace

GridSampler::GridSampler(const KernelCall& call) : align_(call.attributes.Int("align_corners", 0) != 0) {
  const std::string mode = call.attributes.String("mode", "linear"), padding = call.attributes.String("padding_mode", "zeros");
  if (mode != "linear" && mode != "nearest" && mode != "cubic") {
    throw Error(ErrorCode::kAttr, "GridSample: mode '" + Escaped(mode) + "' is none of linear, nearest and cubic");
  }
  if (padding != "zeros" && padding != "border" && padding != "reflection") {
    throw Error(ErrorCode::kAttr, "GridSample: padding_mode '" + Escaped(padding) + "' is none of zeros, border and reflection");
  }
  mode_ = mode == "nearest" ? Mode::kNearest : mode == "cubic" ? Mode::kCubic : Mode::kLinear;
  padding_ = padding == "zeros" ? Padding::kZeros : padding == "border" ? Padding::kBorder : Padding::kReflection;
}

GridTaps GridSampler::TapsOf(double n, int64_t extent) const {
  const double length = static_cast<double>(extent);
  double slope = align_ ? (length - 1) / 2 : length / 2;
  double x = align_ ? (n + 1) * slope : (n + 1) * slope - 0.5;
  const double low = align_ ? 0 : -0.5, high = align_ ? length - 1 : length - 0.5;
  if (mode_ == Mode::kNearest) x = std::nearbyint(x);
  if (!(x >= low && x <= high)) {
    if (padding_ == Padding::kBorder) {
      // Cubic interpolation continues beyond the border, with as many copies of the border sample as it has taps, as in PyTorch and
      // onnxruntime.
      if (mode_ == Mode::kCubic && std::isfinite(x)) return TapsAround(x, slope, extent);
      x = x > high ? length - 1 : 0;  // also for NaN
      slope = 0;
    } else if (padding_ == Padding::kReflection) {
      x = std::isfinite(x) ? Reflected(x, low, high, slope) : 0;
    } else if (!std::isfinite(x)) {
      x = -10;  // all taps are out of range
    }
  }
  return TapsAround(x, slope, extent);
}

GridTaps GridSampler::TapsAround(double x, double slope, int64_t extent) const {
  GridTaps taps;
  const double far = static_cast<double>(extent) + 10;  // keeps the taps of extreme coordinates within 64 bits
  x = std::min(std::max(x, -10.0), far);
  if (mode_ == Mode::kNearest) {
    Set(taps, 0, static_cast<int64_t>(x), 1, 0, extent);
    return taps;
  }
  const double floor = std::floor(x), t = x - floor;
  const auto first = static_cast<int64_t>(floor);
  if (mode_ == Mode::kLinear) {
    Set(taps, 0, first, 1 - t, -slope, extent);
    Set(taps, 1, first + 1, t, slope, extent);
    return taps;
  }
  Set(taps, 0, first - 1, CubicFar(t + 1), CubicFarSlope(t + 1) * slope, extent);
  Set(taps, 1, first, CubicNear(t), CubicNearSlope(t) * slope, extent);
  Set(taps, 2, first + 1, CubicNear(1 - t), -CubicNearSlope(1 - t) * slope, extent);
  Set(taps, 3, first + 2, CubicFar(2 - t), -CubicFarSlope(2 - t) * slope, extent);
  return taps;
}

void GridSampler::Set(GridTaps& taps, size_t i, int64_t at, double weight, double slope, int64_t extent) const {
  if (at < 0 || at >= extent) {
    double sign = 1;
    const double last = static_cast<double>(extent);
    switch (padding_) {
      case Padding::kZeros: at = -1; break;
      case Padding::kBorder: at = at < 0 ? 0 : extent - 1; break;
      case Padding::kReflection:
        at = static_cast<int64_t>(Reflected(static_cast<double>(at), align_ ? 0 : -0.5, align_ ? last - 1 : last - 0.5, sign));
        at = std::min(std::max<int64_t>(at, 0), extent - 1);
        break;
    }
  }
  taps.at[i] = at;
  taps.weight[i] = weight;
  taps.slope[i] = slope;
}

}  // namespace gradloom
