// Which elements of an axis Resize reads: the coordinate of an output element in the input, and what lies around it. In float64 for
// operands of every type, because rounding decides which elements are read. The weights of linear and cubic interpolation are the callers'.
#pragma once

#include <cstdint>

#include "kernels/scalar/math.h"

namespace gradloom::scalar {

enum class ResizeMode : uint8_t { kNearest, kLinear, kCubic };
enum class ResizeCoordinates : uint8_t { kHalfPixel, kPytorchHalfPixel, kAsymmetric, kAlignCorners, kHalfPixelSymmetric, kCrop };
enum class ResizeRounding : uint8_t { kPreferFloor, kPreferCeil, kFloor, kCeil };

// The attributes of a call.
struct ResizeRules {
  ResizeMode mode = ResizeMode::kNearest;
  ResizeCoordinates coordinates = ResizeCoordinates::kHalfPixel;
  ResizeRounding rounding = ResizeRounding::kPreferFloor;  // for kNearest
  bool antialias = false, exclude_outside = false;
  double cubic_a = -0.75;
};

// An axis: its extents in X and Y, its scale, and for kCrop the region of interest.
struct ResizeScale {
  int64_t in = 0, out = 0;
  double scale = 1;
  double roi_start = 0, roi_end = 1;
};

// A coordinate left + ratio with 0 < ratio <= 1.
struct ResizePlace {
  int64_t left;
  double ratio;
};

namespace {

// A coordinate of the output, scaled to the input. For the nearest element, the quotient is rounded to float32, as in other
// implementations: 6 / 1.2f gives the fifth element, not the fourth because of the rounding of 1.2.
GRADLOOM_MATH double Scaled(const ResizeRules& rules, double coordinate, double scale) {
  const double divided = coordinate / scale;
  return rules.mode == ResizeMode::kNearest ? static_cast<double>(static_cast<float>(divided)) : divided;
}

// For the nearest element with kHalfPixelSymmetric: it keeps the center of the image, and many coordinates are whole numbers up to
// rounding, which is that of float32 throughout. The compiler may not make one operation of a product and a sum.
GRADLOOM_MATH double SymmetricCoordinate(const ResizeScale& axis, int64_t x) {
  const float scale = static_cast<float>(axis.scale), extent = static_cast<float>(axis.in);
  const float adjustment = static_cast<float>(axis.out) / (scale * extent);
#ifdef __CUDACC__
  const float offset = __fmul_rn(extent / 2, 1 - adjustment);
#else
  const float offset = extent / 2 * (1 - adjustment);
#endif
  const float divided = (static_cast<float>(x) + 0.5F) / scale;
  return static_cast<double>(offset + divided - 0.5F);
}

// The coordinate in the input of output element x, by the formulas of the operator's documentation.
GRADLOOM_MATH double InputCoordinate(const ResizeRules& rules, const ResizeScale& axis, int64_t x) {
  const double resized = static_cast<double>(x), length = static_cast<double>(axis.in);
  switch (rules.coordinates) {
    case ResizeCoordinates::kHalfPixel: return Scaled(rules, resized + 0.5, axis.scale) - 0.5;
    case ResizeCoordinates::kPytorchHalfPixel: return axis.out > 1 ? Scaled(rules, resized + 0.5, axis.scale) - 0.5 : 0;
    case ResizeCoordinates::kAsymmetric: return Scaled(rules, resized, axis.scale);
    case ResizeCoordinates::kAlignCorners: return axis.out > 1 ? resized * (length - 1) / static_cast<double>(axis.out - 1) : 0;
    case ResizeCoordinates::kHalfPixelSymmetric: {
      if (rules.mode == ResizeMode::kNearest) return SymmetricCoordinate(axis, x);
      const double adjustment = static_cast<double>(axis.out) / (axis.scale * length);
      return length / 2 * (1 - adjustment) + Scaled(rules, resized + 0.5, axis.scale) - 0.5;
    }
    case ResizeCoordinates::kCrop: {
      const double start = axis.roi_start, end = axis.roi_end;
      if (axis.out <= 1) return 0.5 * (start + end) * (length - 1);
      return start * (length - 1) + resized * (end - start) * (length - 1) / static_cast<double>(axis.out - 1);
    }
  }
  return 0;
}

// Whether an output element with this coordinate takes the extrapolation value.
GRADLOOM_MATH bool IsExtrapolated(const ResizeRules& rules, double coordinate, int64_t in) {
  return rules.coordinates == ResizeCoordinates::kCrop && (coordinate < 0 || coordinate > static_cast<double>(in - 1));
}

// Far outside, all reads are clamped to the edge; the bound keeps indices small for any scale.
GRADLOOM_MATH ResizePlace PlaceOf(double coordinate, int64_t in) {
  const double most = 1e9 + static_cast<double>(in - 1);
  coordinate = coordinate > -1e9 ? coordinate : -1e9;
  coordinate = coordinate < most ? coordinate : most;
  const double left = GRADLOOM_LIBM(ceil)(coordinate) - 1;
  return {static_cast<int64_t>(left), coordinate - left};
}

// Whether the nearest element to left + ratio is left + 1.
GRADLOOM_MATH bool RoundsUp(ResizeRounding rounding, double ratio) {
  switch (rounding) {
    case ResizeRounding::kPreferFloor: return ratio > 0.5;
    case ResizeRounding::kPreferCeil: return ratio >= 0.5;
    case ResizeRounding::kFloor: return ratio == 1;
    case ResizeRounding::kCeil: break;
  }
  return true;
}

// The factor of the distances at which weights are taken, at most 1, and the number of elements left + i, -reach < i <= reach, with
// weights.
GRADLOOM_MATH double Shrink(const ResizeRules& rules, double scale) { return rules.antialias && scale < 1 ? scale : 1; }
GRADLOOM_MATH int64_t Reach(const ResizeRules& rules, double shrink) {
  return static_cast<int64_t>(GRADLOOM_LIBM(ceil)((rules.mode == ResizeMode::kCubic ? 2 : 1) / shrink));
}

}  // namespace
}  // namespace gradloom::scalar
