// GridSample and its gradient, over one to three spatial dimensions.
#include <array>

#include "kernels/reference/families.h"
#include "kernels/reference/grid_taps.h"
#include "kernels/reference/operands.h"
#include "kernels/reference/wanted.h"
#include "kernels/reference/wide.h"

namespace gradloom {
namespace {

// The extents that the loops over sample points use.
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

// Calls f(input point or -1, weight, derivatives by dimension) for every combination of taps of one grid point, whose coordinates are
// innermost dimension first.
template <typename T, typename F>
void ForEachTap(const GridSampler& sampler, const Geometry& g, const T* coordinates, F f) {
  std::array<GridTaps, 3> taps;
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
      const GridTaps& of = taps[i];
      at = at < 0 || of.at[tap[i]] < 0 ? -1 : at * g.extent[i] + of.at[tap[i]];
      weight *= of.weight[tap[i]];
      for (int e = 0; e < g.dims; ++e) slopes[static_cast<size_t>(e)] *= e == d ? of.slope[tap[i]] : of.weight[tap[i]];
    }
    f(at, weight, slopes);
  }
}

void RunGridSample(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const GridSampler sampler(call);
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
  const GridSampler sampler(call);
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
          double d_weight = 0;
          for (int64_t c = 0; c < g.channels; ++c) {
            const T gradient = dy[c * g.points + p];
            d_weight += static_cast<double>(gradient) * static_cast<double>(x[c * g.inputs + at]);
            if (dx != nullptr) dx[c * g.inputs + at] += static_cast<T>(weight * static_cast<double>(gradient));
          }
          for (size_t d = 0; d < 3; ++d) sums[d] += d_weight * slopes[d];
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
