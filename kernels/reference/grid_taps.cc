#include "kernels/reference/grid_taps.h"

#include <cmath>
#include <string>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

using scalar::GridMode;
using scalar::GridPadding;

constexpr double kCubicA = -0.75;

double CubicNear(double t) { return ((kCubicA + 2) * t - (kCubicA + 3)) * t * t + 1; }                   // t in [0, 1]
double CubicFar(double t) { return ((kCubicA * t - 5 * kCubicA) * t + 8 * kCubicA) * t - 4 * kCubicA; }  // t in [1, 2]
double CubicNearSlope(double t) { return (3 * (kCubicA + 2) * t - 2 * (kCubicA + 3)) * t; }
double CubicFarSlope(double t) { return (3 * kCubicA * t - 10 * kCubicA) * t + 8 * kCubicA; }

}  // namespace

scalar::GridRules GridRulesOf(const KernelCall& call) {
  const std::string mode = call.attributes.String("mode", "linear"), padding = call.attributes.String("padding_mode", "zeros");
  if (mode != "linear" && mode != "nearest" && mode != "cubic") {
    throw Error(ErrorCode::kAttr, "GridSample: mode '" + Escaped(mode) + "' is none of linear, nearest and cubic");
  }
  if (padding != "zeros" && padding != "border" && padding != "reflection") {
    throw Error(ErrorCode::kAttr, "GridSample: padding_mode '" + Escaped(padding) + "' is none of zeros, border and reflection");
  }
  return {.mode = mode == "nearest" ? GridMode::kNearest
                  : mode == "cubic" ? GridMode::kCubic
                                    : GridMode::kLinear,
          .padding = padding == "zeros"    ? GridPadding::kZeros
                     : padding == "border" ? GridPadding::kBorder
                                           : GridPadding::kReflection,
          .align = call.attributes.Int("align_corners", 0) != 0};
}

GridTaps GridSampler::TapsOf(double n, int64_t extent) const {
  GridTaps taps;
  const auto [x, slope] = scalar::PositionOf(rules_, n, extent);
  if (rules_.mode == GridMode::kNearest) {
    Set(taps, 0, static_cast<int64_t>(x), 1, 0, extent);
    return taps;
  }
  const double floor = std::floor(x), t = x - floor;
  const auto first = static_cast<int64_t>(floor);
  if (rules_.mode == GridMode::kLinear) {
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
  taps.at[i] = scalar::SampleFor(rules_, at, extent);
  taps.weight[i] = weight;
  taps.slope[i] = slope;
}

}  // namespace gradloom
