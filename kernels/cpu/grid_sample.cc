// GridSample and its gradient: what a point draws from and how much is found once for all channels, for blocks of points.
#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <cstring>
#include <string>

#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/reference/grid_taps.h"
#include "kernels/reference/wanted.h"

namespace gradloom {
namespace {

constexpr int64_t kPoints = kGridPoints;  // of a block
constexpr int64_t kBlocksTogether = 64;   // whose taps a gradient keeps at a time
constexpr int64_t kTapsPerThread = 1 << 13;
constexpr int kMostTaps = 64;  // cubic over three dimensions

// Shapes of X [N, C, ...] and of the grid [N, ..., dims].
struct Geometry {
  int64_t batch, channels, inputs = 1, points = 1;
  int dims;
  std::array<int64_t, 3> extent{1, 1, 1};
  int taps = 1;                                         // of a point
  std::array<std::array<uint8_t, 3>, kMostTaps> own{};  // by tap of a point: which tap along each dimension
  bool plain = false;                                   // planes, bilinear, no reflection: `axes` says what the loops want to know
  GridArgs axes{};

  Geometry(const KernelCall& call, const GridSampler& sampler) {
    const Shape &x = call.inputs[0].shape, &grid = call.inputs[1].shape;
    batch = x[0];
    channels = x[1];
    dims = x.rank() - 2;
    for (int i = 0; i < dims; ++i) inputs *= extent[static_cast<size_t>(i)] = x[i + 2], taps *= sampler.num_taps();
    for (int axis = 1; axis + 1 < grid.rank(); ++axis) points *= grid[axis];
    for (int tap = 0; tap < taps; ++tap) {
      int rest = tap;
      for (auto d = static_cast<size_t>(dims); d-- > 0; rest /= sampler.num_taps())
        own[static_cast<size_t>(tap)][d] = static_cast<uint8_t>(rest % sampler.num_taps());
    }
    const std::string padding = call.attributes.String("padding_mode", "zeros");
    plain = dims == 2 && call.attributes.String("mode", "linear") == "linear" && padding != "reflection";
    axes.border = padding == "border";
    const bool ends = call.attributes.Int("align_corners", 0) != 0;
    for (int i = 0; i < 2; ++i) {
      const double length = static_cast<double>(extent[static_cast<size_t>(i)]);
      (i == 0 ? axes.height : axes.width) = ends ? GridAxis{extent[static_cast<size_t>(i)], (length - 1) / 2, 0, 0, length - 1}
                                                 : GridAxis{extent[static_cast<size_t>(i)], length / 2, 0.5, -0.5, length - 0.5};
    }
  }
  int64_t blocks() const { return (points + kPoints - 1) / kPoints; }
};

// The taps of a block of points, by tap and point: which element of a channel (-1: a zero beyond the border), its weight, and the weight's
// slopes by dimension. In memory that is given.
struct Block {
  int32_t* at;
  float* weight;
  float* slope;  // [dims, taps, kPoints], or null

  static int64_t Bytes(const Geometry& g, bool slopes) { return kPoints * g.taps * (8 + (slopes ? 4 * g.dims : 0)); }

  Block(const Geometry& g, bool slopes, void* memory) {
    at = static_cast<int32_t*>(memory);
    weight = reinterpret_cast<float*>(at + kPoints * g.taps);
    slope = slopes ? weight + kPoints * g.taps : nullptr;
  }

  // Of n points whose coordinates are in `grid`, the innermost dimension's first. Whether no tap lies beyond the border.
  bool Fill(const Geometry& g, const GridSampler& sampler, const float* grid, int64_t n) const {
    if (g.plain) {
      GridArgs args = g.axes;
      args.grid = grid, args.n = n, args.at = at, args.weight = weight, args.slope = slope;
      return BestLoops().grid_points(args);
    }
    bool inside = true;
    for (int64_t p = 0; p < n; ++p) {
      std::array<GridTaps, 3> of;
      for (int d = 0; d < g.dims; ++d) {
        const auto i = static_cast<size_t>(d);
        of[i] = sampler.TapsOf(static_cast<double>(grid[p * g.dims + g.dims - 1 - d]), g.extent[i]);
      }
      for (int tap = 0; tap < g.taps; ++tap) inside &= Set(g, of, tap, tap * kPoints + p);
    }
    return inside;
  }

 private:
  bool Set(const Geometry& g, const std::array<GridTaps, 3>& of, int tap, int64_t place) const {
    const std::array<uint8_t, 3>& own = g.own[static_cast<size_t>(tap)];
    int64_t element = 0;
    double product = 1;
    for (int d = 0; d < g.dims; ++d) {
      const auto i = static_cast<size_t>(d);
      element = element < 0 || of[i].at[own[i]] < 0 ? -1 : element * g.extent[i] + of[i].at[own[i]];
      product *= of[i].weight[own[i]];
    }
    at[place] = static_cast<int32_t>(element);
    weight[place] = static_cast<float>(product);
    for (int d = 0; slope != nullptr && d < g.dims; ++d) {
      double along = 1;
      for (int e = 0; e < g.dims; ++e) {
        const auto i = static_cast<size_t>(e);
        along *= e == d ? of[i].slope[own[i]] : of[i].weight[own[i]];
      }
      slope[d * g.taps * kPoints + place] = static_cast<float>(along);
    }
    return element >= 0;
  }
};

class GridSample : public Kernel {
 public:
  explicit GridSample(const KernelCall& call) : sampler_(call), g_(call, sampler_), threads_(ThreadsOf(call, g_)) {}

  static int ThreadsOf(const KernelCall& call, const Geometry& g) {
    return ThreadsFor(g.batch * g.points * g.taps * g.channels, kTapsPerThread, call.threads);
  }
  static int64_t Scratch(const KernelCall& call) {
    const Geometry g(call, GridSampler(call));
    return ThreadsOf(call, g) * Block::Bytes(g, false);
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto* all_x = static_cast<const float*>(inputs[0]);
    const auto* grid = static_cast<const float*>(inputs[1]);
    auto* all_y = static_cast<float*>(outputs[0]);
    ParallelFor(g_.batch * g_.blocks(), threads_, [&](int64_t i) {
      const Block block(g_, false, static_cast<std::byte*>(scratch) + ThreadPlace() * Block::Bytes(g_, false));
      const int64_t image = i / g_.blocks(), first = i % g_.blocks() * kPoints, n = std::min(kPoints, g_.points - first);
      const bool inside = block.Fill(g_, sampler_, grid + (image * g_.points + first) * g_.dims, n);
      for (int64_t c = image * g_.channels; c < (image + 1) * g_.channels; ++c) {
        const float* const x = all_x + c * g_.inputs;
        float* const y = all_y + c * g_.points + first;
        if (!inside) {
          Sample<false>(block, x, n, y);
        } else if (g_.taps == 4) {
          BestLoops().grid_samples(block.at, block.weight, x, n, y);  // nearly all points of nearly all nets
        } else {
          Sample<true>(block, x, n, y);
        }
      }
    });
  }

 private:
  template <bool kInside>
  void Sample(const Block& block, const float* x, int64_t n, float* y) const {
    float sums[kPoints] = {};
    for (int tap = 0; tap < g_.taps; ++tap) {
      const int32_t* const at = block.at + tap * kPoints;
      const float* const weight = block.weight + tap * kPoints;
      for (int64_t p = 0; p < n; ++p) sums[p] += !kInside && at[p] < 0 ? 0.0f : weight[p] * x[at[p]];
    }
    std::copy_n(sums, n, y);
  }

  GridSampler sampler_;
  Geometry g_;
  int threads_;
};

// gradloom.GridSampleGrad(x, grid, grad): what the same element gets is summed in the order of the points, what the same point gets in that
// of the channels.
class GridSampleGrad : public Kernel {
 public:
  explicit GridSampleGrad(const KernelCall& call)
      : sampler_(call),
        g_(call, sampler_),
        dx_(PlaceOfGradient(call, 0)),
        dgrid_(PlaceOfGradient(call, 1)),
        threads_(GridSample::ThreadsOf(call, g_)) {}

  static int64_t Scratch(const KernelCall& call) {
    const Geometry g(call, GridSampler(call));
    return std::min(kBlocksTogether, g.blocks()) * Block::Bytes(g, true);
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    for (int64_t image = 0; image < g_.batch; ++image) {
      const float* const x = static_cast<const float*>(inputs[0]) + image * g_.channels * g_.inputs;
      const float* const grid = static_cast<const float*>(inputs[1]) + image * g_.points * g_.dims;
      const float* const dy = static_cast<const float*>(inputs[2]) + image * g_.channels * g_.points;
      float* const dx = dx_ < 0 ? nullptr : static_cast<float*>(outputs[dx_]) + image * g_.channels * g_.inputs;
      float* const dgrid = dgrid_ < 0 ? nullptr : static_cast<float*>(outputs[dgrid_]) + image * g_.points * g_.dims;
      if (dx != nullptr) {
        ParallelFor(g_.channels, threads_, [&](int64_t c) { std::fill_n(dx + c * g_.inputs, g_.inputs, 0.0f); });
      }
      for (int64_t first = 0; first < g_.blocks(); first += kBlocksTogether) {
        const int64_t count = std::min(kBlocksTogether, g_.blocks() - first);
        const auto block_of = [&](int64_t b) { return Block(g_, true, static_cast<std::byte*>(scratch) + b * Block::Bytes(g_, true)); };
        const auto points_of = [&](int64_t b) { return std::min(kPoints, g_.points - (first + b) * kPoints); };
        ParallelFor(count, threads_, [&](int64_t b) {
          const int64_t point = (first + b) * kPoints;
          block_of(b).Fill(g_, sampler_, grid + point * g_.dims, points_of(b));
          if (dgrid != nullptr) ToGrid(block_of(b), x, dy + point, points_of(b), dgrid + point * g_.dims);
        });
        if (dx == nullptr) continue;
        ParallelFor(g_.channels, threads_, [&](int64_t c) {
          for (int64_t b = 0; b < count; ++b)
            ToInput(block_of(b), dy + c * g_.points + (first + b) * kPoints, points_of(b), dx + c * g_.inputs);
        });
      }
    }
  }

 private:
  void ToInput(const Block& block, const float* dy, int64_t n, float* dx) const {
    for (int64_t p = 0; p < n; ++p) {
      for (int tap = 0; tap < g_.taps; ++tap) {
        const int32_t at = block.at[tap * kPoints + p];
        if (at >= 0) dx[at] += block.weight[tap * kPoints + p] * dy[p];
      }
    }
  }

  void ToGrid(const Block& block, const float* x, const float* dy, int64_t n, float* dgrid) const {
    double through[kMostTaps * kPoints] = {};
    for (int64_t c = 0; c < g_.channels; ++c) {
      for (int tap = 0; tap < g_.taps; ++tap) {
        const int32_t* const at = block.at + tap * kPoints;
        double* const sums = through + tap * kPoints;
        for (int64_t p = 0; p < n; ++p) {
          if (at[p] >= 0) sums[p] += static_cast<double>(dy[c * g_.points + p]) * static_cast<double>(x[c * g_.inputs + at[p]]);
        }
      }
    }
    for (int64_t p = 0; p < n; ++p) {
      for (int d = 0; d < g_.dims; ++d) {
        double sum = 0;
        for (int tap = 0; tap < g_.taps; ++tap) {
          const int64_t place = tap * kPoints + p;
          if (block.at[place] >= 0) sum += through[place] * static_cast<double>(block.slope[d * g_.taps * kPoints + place]);
        }
        dgrid[p * g_.dims + g_.dims - 1 - d] = static_cast<float>(sum);
      }
    }
  }

  GridSampler sampler_;
  Geometry g_;
  int64_t dx_, dgrid_;  // outputs, or -1
  int threads_;
};

std::string Rejects(const KernelCall& call) {
  const Shape &x = call.inputs[0].shape, &grid = call.inputs[1].shape;
  if (x.rank() < 3 || x.rank() > 5 || grid.rank() != x.rank()) return "rank " + std::to_string(x.rank());
  if (x.elements() == 0 || grid.elements() == 0) return "nothing to compute";
  if (x.elements() / (x[0] * x[1]) > INT_MAX) return "more elements than an int counts";
  return RejectsAllBut(call, DType::kFloat32);
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.GridSample", .op = "GridSample", .domain = "", .rejects = Rejects, .scratch_bytes = GridSample::Scratch},
     .make = MakeKernel<GridSample>},
    {.row = {.name = "cpu.GridSampleGrad",
             .op = "GridSampleGrad",
             .domain = "gradloom",
             .rejects = Rejects,
             .scratch_bytes = GridSampleGrad::Scratch},
     .make = MakeKernel<GridSampleGrad>},
};

}  // namespace

std::span<const CpuKernel> CpuGridSampleKernels() { return kKernels; }

}  // namespace gradloom
