// GridSample: the samples of X that a grid point reads, over one to three spatial dimensions.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cuda/float_operand.cuh"
#include "kernels/cuda/plane_sums.cuh"
#include "kernels/cuda/sample.cuh"
#include "kernels/reference/grid_taps.h"

namespace gradloom::cuda {

inline constexpr double kGridCubicA = -0.75;

// The derivatives of the cubic kernel at distance t and at distance 1 + t, for t in [0, 1].
template <typename A>
GRADLOOM_DEVICE A CubicNearSlope(A a, A t) {
  return (3 * (a + 2) * t - 2 * (a + 3)) * t;
}
template <typename A>
GRADLOOM_DEVICE A CubicFarSlope(A a, A t) {
  return a * (1 - t) * (1 - 3 * t);
}

// Everything that does not depend on data.
struct GridPlan {
  int64_t batch, channels, inputs = 1, points = 1;
  int64_t extent[3] = {1, 1, 1}, stride[3] = {};  // of the spatial dimensions of X
  scalar::GridRules rules;
  FloatOperand grid;
  int64_t channels_each = 1;  // channels per thread

  explicit GridPlan(const KernelCall& call);
  GridPlan For(const Launch& l) const {
    GridPlan plan = *this;
    plan.grid.data = l.inputs[1];
    return plan;
  }
  // Sets the number of channels per thread, out of `count`, so that there are enough threads.
  void DivideChannels(int64_t count) {
    constexpr int64_t kEnough = 1 << 18;
    const int64_t groups = std::min(kEnough / std::max<int64_t>(batch * points, 1) + 1, std::max<int64_t>(count, 1));
    channels_each = (count + groups - 1) / groups;
  }
};

// The taps of one grid point by dimension: their offsets, which add up over the dimensions, and weights. kTaps is 4 for cubic, else 2, of
// which nearest uses one.
template <typename A, int kDims, int kTaps>
struct GridPoint {
  int64_t at[kDims][kTaps];  // -1: absent, or in the zero padding
  A weight[kDims][kTaps];
  A slope[kDims][kTaps];  // d weight / d normalized coordinate

  // Point p of sample b. The grid has its coordinates innermost dimension first.
  GRADLOOM_DEVICE GridPoint(const GridPlan& plan, int64_t b, int64_t p) {
    for (int d = 0; d < kDims; ++d) FindTaps(plan, d, plan.grid[(b * plan.points + p) * kDims + kDims - 1 - d]);
  }

  // Calls f(offset, weight, taps) for every combination of taps inside X.
  template <typename F>
  GRADLOOM_DEVICE void ForEach(F&& f) const {
    constexpr int kCombinations = kDims == 1 ? kTaps : kDims == 2 ? kTaps * kTaps : kTaps * kTaps * kTaps;
    for (int c = 0; c < kCombinations; ++c) {
      int tap[kDims];
      int64_t offset = 0, signs = 0;
      A all = 1;
      for (int d = kDims - 1, rest = c; d >= 0; --d, rest /= kTaps) {
        tap[d] = rest % kTaps;
        offset += at[d][tap[d]];
        signs |= at[d][tap[d]];
        all *= weight[d][tap[d]];
      }
      if (signs >= 0) f(offset, all, tap);
    }
  }

  // d weight / d normalized coordinate of dimension d.
  GRADLOOM_DEVICE A WeightDerivative(int d, const int (&tap)[kDims]) const {
    A product = 1;
    for (int e = 0; e < kDims; ++e) product *= e == d ? slope[e][tap[e]] : weight[e][tap[e]];
    return product;
  }

 private:
  // Finds the taps for the normalized coordinate n, which is -1 and 1 at the ends.
  GRADLOOM_DEVICE void FindTaps(const GridPlan& plan, int d, double n) {
    const scalar::GridPosition position = scalar::PositionOf(plan.rules, n, plan.extent[d]);
    SetTaps(plan, d, position.x, static_cast<A>(position.slope));
  }

  GRADLOOM_DEVICE void SetTaps(const GridPlan& plan, int d, double x, A d_position) {
    if (plan.rules.mode == scalar::GridMode::kNearest) {
      Set(plan, d, 0, static_cast<int64_t>(x), 1, 0);
      at[d][1] = -1;
      weight[d][1] = slope[d][1] = 0;
      return;
    }
    const double floor = ::floor(x);
    const A t = static_cast<A>(x - floor), a = static_cast<A>(kGridCubicA);
    const auto first = static_cast<int64_t>(floor);
    if constexpr (kTaps == 2) {
      Set(plan, d, 0, first, 1 - t, -d_position);
      Set(plan, d, 1, first + 1, t, d_position);
    } else {
      Set(plan, d, 0, first - 1, CubicFar(a, t), CubicFarSlope(a, t) * d_position);
      Set(plan, d, 1, first, CubicNear(a, t), CubicNearSlope(a, t) * d_position);
      Set(plan, d, 2, first + 1, CubicNear(a, 1 - t), -CubicNearSlope(a, 1 - t) * d_position);
      Set(plan, d, 3, first + 2, CubicFar(a, 1 - t), -CubicFarSlope(a, 1 - t) * d_position);
    }
  }

  // Sets a tap for a sample number that may be out of range.
  GRADLOOM_DEVICE void Set(const GridPlan& plan, int d, int i, int64_t sample, A tap_weight, A tap_slope) {
    const int64_t read = scalar::SampleFor(plan.rules, sample, plan.extent[d]);
    at[d][i] = read < 0 ? -1 : read * plan.stride[d];
    weight[d][i] = tap_weight;
    slope[d][i] = tap_slope;
  }
};

}  // namespace gradloom::cuda
