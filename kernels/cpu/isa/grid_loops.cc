// Where points of a grid draw from in a plane, bilinearly. As kernels/reference/grid_taps.cc has it, operation for operation, in float64.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

// The two samples along an axis.
struct Pair {
  int at[2];  // within the axis, or outside it
  double weight[2];
  double slope;
};

template <bool kBorder>
GRADLOOM_INLINE Pair PairOf(double g, const GridAxis& axis) {
  const double last = static_cast<double>(axis.extent - 1);
  double x = (g + 1) * axis.half - axis.before, slope = axis.half;
  if (kBorder) {
    const bool above = x > axis.high, within = x >= axis.low && x <= axis.high;
    x = within ? x : above ? last : 0;  // 0: NaN, too
    slope = within ? slope : 0;
  } else {
    // Beyond every tap is where infinities and NaN are, too.
    x = x >= -10.0 ? x : -10.0;
    x = x <= last + 11.0 ? x : last + 11.0;
  }
  const double floor = __builtin_floor(x), t = x - floor;
  const int first = static_cast<int>(floor), end = static_cast<int>(axis.extent);
  Pair pair{{first, first + 1}, {1 - t, t}, slope};
  if (kBorder) {
    pair.at[0] = first < 0 ? 0 : first;
    pair.at[1] = first + 1 < end ? first + 1 : end - 1;
  }
  return pair;
}

template <bool kBorder, bool kSlopes>
bool Points(const GridArgs& args) {
  const int height = static_cast<int>(args.height.extent), width = static_cast<int>(args.width.extent);
  int outside = 0;
#pragma omp simd reduction(| : outside)
  for (Index p = 0; p < args.n; ++p) {
    const Pair x = PairOf<kBorder>(static_cast<double>(args.grid[2 * p]), args.width);
    const Pair y = PairOf<kBorder>(static_cast<double>(args.grid[2 * p + 1]), args.height);
    for (int dy = 0; dy < 2; ++dy) {
      for (int dx = 0; dx < 2; ++dx) {
        const Index place = (2 * dy + dx) * kGridPoints + p;
        const bool there = kBorder || (static_cast<unsigned>(y.at[dy]) < static_cast<unsigned>(height) &&
                                       static_cast<unsigned>(x.at[dx]) < static_cast<unsigned>(width));
        args.at[place] = there ? y.at[dy] * width + x.at[dx] : -1;
        outside |= there ? 0 : 1;
        args.weight[place] = static_cast<float>(y.weight[dy] * x.weight[dx]);
        if (kSlopes) {
          args.slope[place] = static_cast<float>((dy == 0 ? -y.slope : y.slope) * x.weight[dx]);
          args.slope[4 * kGridPoints + place] = static_cast<float>((dx == 0 ? -x.slope : x.slope) * y.weight[dy]);
        }
      }
    }
  }
  return outside == 0;
}

}  // namespace

bool GridPoints(const GridArgs& args) {
  if (args.border) return args.slope == nullptr ? Points<true, false>(args) : Points<true, true>(args);
  return args.slope == nullptr ? Points<false, false>(args) : Points<false, true>(args);
}

void GridSamples(const int* at, const float* weight, const float* x, Index n, float* y) {
#pragma omp simd
  for (Index p = 0; p < n; ++p) {
    y[p] = weight[p] * x[at[p]] + weight[kGridPoints + p] * x[at[kGridPoints + p]] +
           weight[2 * kGridPoints + p] * x[at[2 * kGridPoints + p]] + weight[3 * kGridPoints + p] * x[at[3 * kGridPoints + p]];
  }
}

}  // namespace gradloom::GRADLOOM_ISA
