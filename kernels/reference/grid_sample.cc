// GridSample and its gradient, over one to three spatial dimensions, as ONNX's reference implementation: a
// coordinate outside the border is clamped or reflected before its taps are chosen, and each tap once more.
#include <array>
#include <cmath>

#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"
#include "kernels/reference/wanted.h"
#include "kernels/reference/wide.h"

namespace gradloom {
namespace {

enum class Mode { kNearest, kLinear, kCubic };
enum class Padding { kZeros, kBorder, kReflection };

constexpr int kMostTaps = 4;
constexpr double kCubicA = -0.75;

// The samples along one dimension that a coordinate draws from.
struct Taps {
  std::array<int64_t, kMostTaps> at{};  // -1: a zero beyond the border
  std::array<double, kMostTaps> weight{};
  std::array<double, kMostTaps> slope{};  // d weight / d normalized coordinate
};

// x brought back between `low` and `high` by reflection at both; `sign` turns with each reflection.
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

class Sampler {
 public:
  explicit Sampler(const KernelCall& call) : align_(call.attributes.Int("align_corners", 0) != 0) {
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

  int num_taps() const { return mode_ == Mode::kNearest ? 1 : mode_ == Mode::kLinear ? 2 : 4; }

  // Of the normalized coordinate n (-1 and 1 are the ends) along a dimension of `extent` samples.
  Taps TapsOf(double n, int64_t extent) const {
    const double length = static_cast<double>(extent);
    double slope = align_ ? (length - 1) / 2 : length / 2;
    double x = align_ ? (n + 1) * slope : (n + 1) * slope - 0.5;
    const double low = align_ ? 0 : -0.5, high = align_ ? length - 1 : length - 0.5;
    if (mode_ == Mode::kNearest) x = std::nearbyint(x);
    if (!(x >= low && x <= high)) {
      if (padding_ == Padding::kBorder) {
        x = x > high ? length - 1 : 0;  // NaN too
        slope = 0;
      } else if (padding_ == Padding::kReflection) {
        x = std::isfinite(x) ? Reflected(x, low, high, slope) : 0;
      } else if (!std::isfinite(x)) {
        x = -10;  // beyond every tap
      }
    }
    Taps taps;
    const double far = length + 10;  // keeps the taps of a wild coordinate within 64 bits
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

 private:
  void Set(Taps& taps, size_t i, int64_t at, double weight, double slope, int64_t extent) const {
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

  bool align_;
  Mode mode_;
  Padding padding_;
};

// What the loops over sample points need of the shapes.
struct Geometry {
  int64_t batch, channels, inputs, points;
  int dims;
  std::array<int64_t, 3> extent{1, 1, 1};

  Geometry(const Shape& x, const Shape& grid) : batch(x[0]), channels(x[1]), inputs(1), points(1), dims(x.rank() - 2) {
    if (dims < 1 || dims > 3) throw Error(ErrorCode::kUnsupported, "GridSample over " + std::to_string(dims) + " spatial dimensions");
    for (int i = 0; i < dims; ++i) inputs *= extent[static_cast<size_t>(i)] = x[i + 2];
    for (int axis = 1; axis + 1 < grid.rank(); ++axis) points *= grid[axis];
  }
};

// Calls f(input point or -1, weight, slopes by dimension) for every combination of taps of one sample point, whose
// coordinates are given innermost dimension first.
template <typename T, typename F>
void ForEachTap(const Sampler& sampler, const Geometry& g, const T* coordinates, F f) {
  std::array<Taps, 3> taps;
  for (int d = 0; d < g.dims; ++d) {
    taps[static_cast<size_t>(d)] =
        sampler.TapsOf(static_cast<double>(static_cast<Arithmetic<T>>(coordinates[g.dims - 1 - d])), g.extent[static_cast<size_t>(d)]);
  }
  const int n = sampler.num_taps();
  int combinations = 1;
  for (int d = 0; d < g.dims; ++d) combinations *= n;
  for (int c = 0; c < combinations; ++c) {
    int64_t at = 0;
    std::array<size_t, 3> tap{};
    for (int d = g.dims - 1, rest = c; d >= 0; --d, rest /= n) tap[static_cast<size_t>(d)] = static_cast<size_t>(rest % n);
    double weight = 1;
    std::array<double, 3> slopes{1, 1, 1};
    for (int d = 0; d < g.dims; ++d) {
      const auto i = static_cast<size_t>(d);
      const Taps& of = taps[i];
      at = at < 0 || of.at[tap[i]] < 0 ? -1 : at * g.extent[i] + of.at[tap[i]];
      weight *= of.weight[tap[i]];
      for (int e = 0; e < g.dims; ++e) slopes[static_cast<size_t>(e)] *= e == d ? of.slope[tap[i]] : of.weight[tap[i]];
    }
    f(at, weight, slopes);
  }
}

void RunGridSample(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Sampler sampler(call);
  const Geometry g(call.inputs[0].shape, call.inputs[1].shape);
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    WithFloating(call.inputs[1].dtype, [&]<typename G>(std::type_identity<G>) {
      std::vector<double> sums(static_cast<size_t>(g.channels));
      for (int64_t b = 0; b < g.batch; ++b) {
        const T* x = In<T>(inputs, 0) + b * g.channels * g.inputs;
        T* y = Out<T>(outputs, 0) + b * g.channels * g.points;
        for (int64_t p = 0; p < g.points; ++p) {
          std::fill(sums.begin(), sums.end(), 0.0);
          ForEachTap(sampler, g, In<G>(inputs, 1) + (b * g.points + p) * g.dims, [&](int64_t at, double weight, const auto&) {
            if (at < 0) return;
            for (int64_t c = 0; c < g.channels; ++c) {
              sums[static_cast<size_t>(c)] += weight * static_cast<double>(static_cast<Arithmetic<T>>(x[c * g.inputs + at]));
            }
          });
          for (int64_t c = 0; c < g.channels; ++c)
            y[c * g.points + p] = static_cast<T>(static_cast<Arithmetic<T>>(sums[static_cast<size_t>(c)]));
        }
      }
    });
  });
}

// Inputs: X, the grid and the gradient of Y.
void RunGridSampleGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Sampler sampler(call);
  const Geometry g(call.inputs[0].shape, call.inputs[1].shape);
  if (call.inputs[0].dtype != call.inputs[1].dtype) throw Error(ErrorCode::kUnsupported, "GridSampleGrad of X and a grid of two types");
  ZeroOutputs(call, outputs);
  WithFloat(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    T* all_dx = static_cast<T*>(GradientOf(call, outputs, 0));
    T* all_dgrid = static_cast<T*>(GradientOf(call, outputs, 1));
    for (int64_t b = 0; b < g.batch; ++b) {
      const T* x = In<T>(inputs, 0) + b * g.channels * g.inputs;
      const T* dy = In<T>(inputs, 2) + b * g.channels * g.points;
      T* dx = all_dx == nullptr ? nullptr : all_dx + b * g.channels * g.inputs;
      for (int64_t p = 0; p < g.points; ++p) {
        std::array<double, 3> sums{};
        const int64_t place = (b * g.points + p) * g.dims;
        ForEachTap(sampler, g, In<T>(inputs, 1) + place, [&](int64_t at, double weight, const std::array<double, 3>& slopes) {
          if (at < 0) return;
          double through = 0;
          for (int64_t c = 0; c < g.channels; ++c) {
            const T up = dy[c * g.points + p];
            through += static_cast<double>(up) * static_cast<double>(x[c * g.inputs + at]);
            if (dx != nullptr) dx[c * g.inputs + at] += static_cast<T>(weight * static_cast<double>(up));
          }
          for (size_t d = 0; d < 3; ++d) sums[d] += through * slopes[d];
        });
        if (all_dgrid == nullptr) continue;
        for (int d = 0; d < g.dims; ++d) all_dgrid[place + g.dims - 1 - d] = static_cast<T>(sums[static_cast<size_t>(d)]);
      }
    }
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"GridSample", "", Wide<RunGridSample>},
    {"GridSampleGrad", "gradloom", Wide<RunGridSampleGrad>},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceGridSample() { return kKernels; }

}  // namespace gradloom
