// The samples that grid points read in a plane, bilinear or nearest. The same operations as in kernels/scalar/grid_sample.h, without
// branches.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

constexpr GridPadding kZeros = GridPadding::kZeros, kBorder = GridPadding::kBorder;

// The position of a coordinate along an axis, and its derivative.
struct Position {
  double x, slope;
};

// x outside [low, high] is reflected at both ends. The derivative changes sign after an odd number of reflections.
GRADLOOM_INLINE Position Reflected(double x, const GridAxis& axis) {
  const double range = axis.high - axis.low, finite = x - x == 0 ? x : 0;
  const bool below = finite < axis.low, outside = below || finite > axis.high;
  const double distance = below ? axis.low - finite : finite - axis.high;
  const double reflections = range > 0 ? __builtin_floor(distance / range) : 0;
  const double rest = distance - reflections * range, half = reflections * 0.5;
  const bool odd = __builtin_floor(half) == half;  // `reflections` does not count the first reflection
  const double turned = range > 0 ? (below == odd ? axis.low + rest : axis.high - rest) : axis.low;
  const double slope = range > 0 ? (odd ? -axis.half : axis.half) : 0;
  return {outside ? turned : finite, outside ? slope : axis.half};
}

// With `kNearest`, the position is an integer.
template <GridPadding kPadding, bool kNearest>
GRADLOOM_INLINE Position PositionOf(double g, const GridAxis& axis) {
  const double last = static_cast<double>(axis.extent - 1);
  double x = (g + 1) * axis.half - axis.before;
  if (kNearest) x = __builtin_nearbyint(x);
  if (kPadding == kZeros) {
    // Infinities and NaN end up out of range of every tap.
    x = x >= -10.0 ? x : -10.0;
    return {x <= last + 11.0 ? x : last + 11.0, axis.half};
  }
  if (kPadding == kBorder) {
    const bool above = x > axis.high, within = x >= axis.low && x <= axis.high;
    return {within ? x : above ? last : 0, within ? axis.half : 0};  // 0 for NaN as well
  }
  Position position = Reflected(x, axis);
  // With so many reflections that the number has no fraction left, any position within the axis will do.
  position.x = position.x >= -1.0 ? position.x : -1.0;
  position.x = position.x <= last + 1.0 ? position.x : last + 1.0;
  return position;
}

// The sample that `at` reads: itself if it is within the axis or padding is zeros, else the sample that replaces it.
template <GridPadding kPadding>
GRADLOOM_INLINE int Within(int at, const GridAxis& axis) {
  const int last = static_cast<int>(axis.extent) - 1;
  if (kPadding == kZeros) return at;
  // Reflected at the center of the last sample, the next sample is the one before the last.
  const int beyond = kPadding == kBorder || axis.before != 0 || last == 0 ? last : last - 1;
  return at < 0 ? 0 : at > last ? beyond : at;
}

// The two samples along an axis.
struct Pair {
  int at[2];  // within the axis, or outside it for zero padding
  double weight[2];
  double slope;
};

template <GridPadding kPadding>
GRADLOOM_INLINE Pair PairOf(double g, const GridAxis& axis) {
  const Position position = PositionOf<kPadding, false>(g, axis);
  const double floor = __builtin_floor(position.x), t = position.x - floor;
  const int first = static_cast<int>(floor);
  return {{Within<kPadding>(first, axis), Within<kPadding>(first + 1, axis)}, {1 - t, t}, position.slope};
}

template <GridPadding kPadding, bool kSlopes>
bool Points(const GridArgs& args) {
  const int height = static_cast<int>(args.height.extent), width = static_cast<int>(args.width.extent);
  int outside = 0;
#pragma omp simd reduction(| : outside)
  for (Index p = 0; p < args.n; ++p) {
    const Pair x = PairOf<kPadding>(static_cast<double>(args.grid[2 * p]), args.width);
    const Pair y = PairOf<kPadding>(static_cast<double>(args.grid[2 * p + 1]), args.height);
    for (int dy = 0; dy < 2; ++dy) {
      for (int dx = 0; dx < 2; ++dx) {
        const Index entry = (2 * dy + dx) * kGridPoints + p;
        const bool there = kPadding != kZeros || (static_cast<unsigned>(y.at[dy]) < static_cast<unsigned>(height) &&
                                                  static_cast<unsigned>(x.at[dx]) < static_cast<unsigned>(width));
        args.at[entry] = there ? y.at[dy] * width + x.at[dx] : -1;
        outside |= there ? 0 : 1;
        args.weight[entry] = static_cast<float>(y.weight[dy] * x.weight[dx]);
        if (kSlopes) {
          args.slope[entry] = static_cast<float>((dy == 0 ? -y.slope : y.slope) * x.weight[dx]);
          args.slope[4 * kGridPoints + entry] = static_cast<float>((dx == 0 ? -x.slope : x.slope) * y.weight[dy]);
        }
      }
    }
  }
  return outside == 0;
}

template <GridPadding kPadding>
bool NearestPoints(const GridArgs& args) {
  const int height = static_cast<int>(args.height.extent), width = static_cast<int>(args.width.extent);
  int outside = 0;
#pragma omp simd reduction(| : outside)
  for (Index p = 0; p < args.n; ++p) {
    const double along = static_cast<double>(args.grid[2 * p]), down = static_cast<double>(args.grid[2 * p + 1]);
    const int x = Within<kPadding>(static_cast<int>(PositionOf<kPadding, true>(along, args.width).x), args.width);
    const int y = Within<kPadding>(static_cast<int>(PositionOf<kPadding, true>(down, args.height).x), args.height);
    const bool there = kPadding != kZeros || (static_cast<unsigned>(y) < static_cast<unsigned>(height) &&
                                              static_cast<unsigned>(x) < static_cast<unsigned>(width));
    args.at[p] = there ? y * width + x : -1;
    outside |= there ? 0 : 1;
    args.weight[p] = 1;
  }
  return outside == 0;
}

template <GridPadding kPadding>
bool PointsOf(const GridArgs& args) {
  if (args.nearest) return NearestPoints<kPadding>(args);
  return args.slope == nullptr ? Points<kPadding, false>(args) : Points<kPadding, true>(args);
}

// Vectors of kChannels interleaved channels, in registers and in memory. Pass them by reference: without AVX-512, functions cannot return
// them.
template <int kChannels>
struct Channels {
  typedef float Own __attribute__((vector_size(kChannels * 4)));
  typedef float InMemory __attribute__((vector_size(kChannels * 4), aligned(4), may_alias));
};

// Adds halves pairwise.
template <int kChannels>
GRADLOOM_INLINE float SumOf(const typename Channels<kChannels>::Own& v) {
  if constexpr (kChannels == 2) {
    return v[0] + v[1];
  } else {
    typename Channels<kChannels / 2>::Own half;
    for (int i = 0; i < kChannels / 2; ++i) half[i] = v[i] + v[kChannels / 2 + i];
    return SumOf<kChannels / 2>(half);
  }
}

template <int kChannels, int kDims>
void Gradients(const GridGradientArgs& args) {
  using Vec = typename Channels<kChannels>::Own;
  using InMemory = typename Channels<kChannels>::InMemory;
  for (Index p = 0; p < args.n; ++p) {
    const Vec g = *reinterpret_cast<const InMemory*>(args.dy + p * kChannels);
    Vec along[kDims] = {};
    for (Index tap = 0; tap < args.taps; ++tap) {
      const Index entry = tap * kGridPoints + p;
      const Index at = args.at[entry];
      if (at < 0) continue;
      if (args.dx != nullptr) *reinterpret_cast<InMemory*>(args.dx + at * kChannels) += args.weight[entry] * g;
      if (args.x != nullptr) {
        const Vec x = *reinterpret_cast<const InMemory*>(args.x + at * kChannels);
        for (int d = 0; d < kDims; ++d) along[d] += args.slope[d * args.taps * kGridPoints + entry] * x;
      }
    }
    if (args.x == nullptr) continue;
    for (int d = 0; d < kDims; ++d) args.dgrid[p * kDims + kDims - 1 - d] = static_cast<double>(SumOf<kChannels>(along[d] * g));
  }
}

template <bool kInside>
void Samples(const int* at, const float* weight, const float* x, Index n, float* y) {
#pragma omp simd
  for (Index p = 0; p < n; ++p) {
    float sum = 0;
    for (Index tap = 0; tap < 4; ++tap) {
      const int offset = at[tap * kGridPoints + p];
      // Padding contributes 0 whatever x[0] is.
      const float term = weight[tap * kGridPoints + p] * x[kInside || offset >= 0 ? offset : 0];
      sum += kInside || offset >= 0 ? term : 0.0f;
    }
    y[p] = sum;
  }
}

template <int kChannels>
void GradientsOf(const GridGradientArgs& args) {
  if (args.dims == 1) return Gradients<kChannels, 1>(args);
  if (args.dims == 2) return Gradients<kChannels, 2>(args);
  Gradients<kChannels, 3>(args);
}

}  // namespace

void GridGradients(const GridGradientArgs& args) {
  if (args.channels == 4) return GradientsOf<4>(args);
  if (args.channels == 8) return GradientsOf<8>(args);
  GradientsOf<16>(args);
}

bool GridPoints(const GridArgs& args) {
  switch (args.padding) {
    case GridPadding::kZeros: return PointsOf<GridPadding::kZeros>(args);
    case GridPadding::kBorder: return PointsOf<GridPadding::kBorder>(args);
    case GridPadding::kReflection: break;
  }
  return PointsOf<GridPadding::kReflection>(args);
}

void GridSamples(const int* at, const float* weight, const float* x, Index n, bool inside, float* y) {
  if (inside) return Samples<true>(at, weight, x, n, y);
  Samples<false>(at, weight, x, n, y);
}

}  // namespace gradloom::GRADLOOM_ISA
