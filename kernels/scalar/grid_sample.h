// Where GridSample reads: the position of a coordinate along a dimension, and the samples that stand for those beyond its ends. As in
// ONNX's reference implementation, a coordinate outside the border is clamped or reflected before its taps are chosen, and then each tap
// again. The exception is cubic interpolation with a clamped border, where the reference produces steps: it follows PyTorch and
// onnxruntime.
//
// All in float64 for operands of every type, because rounding decides which samples are read. The loops for planes on the CPU
// (kernels/cpu/isa/grid_loops.cc) are the same operations without branches.
#pragma once

#include <cstdint>

#include "kernels/scalar/math.h"

namespace gradloom::scalar {

enum class GridMode : uint8_t { kNearest, kLinear, kCubic };
enum class GridPadding : uint8_t { kZeros, kBorder, kReflection };

// The attributes of a call.
struct GridRules {
  GridMode mode = GridMode::kLinear;
  GridPadding padding = GridPadding::kZeros;
  bool align = false;  // align_corners: -1 and 1 are the centers of the first and last samples, not their outer edges
};

// Between the samples of a dimension, numbered from 0; `slope` is d x / d normalized coordinate.
struct GridPosition {
  double x, slope;
};

namespace {

// x reflected at `low` and `high` until it lies between them; `slope` changes its sign with each reflection.
GRADLOOM_MATH double Reflected(double x, double low, double high, double& slope) {
  const double range = high - low;
  if (range <= 0) {
    slope = 0;
    return low;
  }
  const bool below = x < low;
  if (!below && x <= high) return x;
  const double distance = below ? low - x : x - high;
  const double turns = GRADLOOM_LIBM(floor)(distance / range), rest = distance - turns * range;
  const bool even = GRADLOOM_LIBM(fmod)(turns, 2.0) == 0;
  if (even) slope = -slope;
  return below == even ? low + rest : high - rest;
}

// The position of the normalized coordinate n along a dimension of `extent` samples. With kNearest it is a whole number. It is within
// [-10, extent + 10], so that its taps are small integers; those of coordinates that read nothing are all out of range.
GRADLOOM_MATH GridPosition PositionOf(const GridRules& rules, double n, int64_t extent) {
  const double length = static_cast<double>(extent);
  double slope = rules.align ? (length - 1) / 2 : length / 2;
  double x = rules.align ? (n + 1) * slope : (n + 1) * slope - 0.5;
  const double low = rules.align ? 0 : -0.5, high = rules.align ? length - 1 : length - 0.5;
  if (rules.mode == GridMode::kNearest) x = GRADLOOM_LIBM(rint)(x);
  const bool finite = x - x == 0;
  if (!(x >= low && x <= high)) {
    if (rules.padding == GridPadding::kBorder) {
      // Cubic interpolation continues beyond the border, with as many copies of the border sample as it has taps.
      if (rules.mode != GridMode::kCubic || !finite) {
        x = x > high ? length - 1 : 0;  // also for NaN
        slope = 0;
      }
    } else if (rules.padding == GridPadding::kReflection) {
      x = finite ? Reflected(x, low, high, slope) : 0;
    } else if (!finite) {
      x = -10;
    }
  }
  return {x < -10 ? -10 : x > length + 10 ? length + 10 : x, slope};
}

// The sample that is read for number `at`, which may be out of range; -1: a zero.
GRADLOOM_MATH int64_t SampleFor(const GridRules& rules, int64_t at, int64_t extent) {
  if (at >= 0 && at < extent) return at;
  if (rules.padding == GridPadding::kZeros) return -1;
  if (rules.padding == GridPadding::kReflection) {
    const double last = static_cast<double>(extent);
    double slope = 1;
    at = static_cast<int64_t>(Reflected(static_cast<double>(at), rules.align ? 0 : -0.5, rules.align ? last - 1 : last - 0.5, slope));
  }
  return at < 0 ? 0 : at >= extent ? extent - 1 : at;
}

}  // namespace
}  // namespace gradloom::scalar
