// GridSample and its gradient. For blocks of points, the elements that a point reads and their weights are computed once for all channels.
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
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kPoints = kGridPoints;  // per block
constexpr int64_t kTapsPerThread = 1 << 13;
constexpr int kMaxTaps = 64;  // cubic in three dimensions

// The shapes of X [N, C, ...] and of the grid [N, ..., dims].
struct Geometry {
  int64_t batch, channels, inputs = 1, points = 1;
  int dims;
  std::array<int64_t, 3> extent{1, 1, 1};
  int taps = 1;                                        // per point
  std::array<std::array<uint8_t, 3>, kMaxTaps> own{};  // for each tap of a point: its tap along each dimension
  bool plain = false;                                  // planes, bilinear or nearest: then the loops use `axes`
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
    const scalar::GridRules& rules = sampler.rules();
    axes.nearest = rules.mode == scalar::GridMode::kNearest;
    plain = dims == 2 && rules.mode != scalar::GridMode::kCubic;
    axes.padding = rules.padding == scalar::GridPadding::kZeros    ? GridPadding::kZeros
                   : rules.padding == scalar::GridPadding::kBorder ? GridPadding::kBorder
                                                                   : GridPadding::kReflection;
    for (int i = 0; i < 2; ++i) {
      const double length = static_cast<double>(extent[static_cast<size_t>(i)]);
      (i == 0 ? axes.height : axes.width) = rules.align ? GridAxis{extent[static_cast<size_t>(i)], (length - 1) / 2, 0, 0, length - 1}
                                                        : GridAxis{extent[static_cast<size_t>(i)], length / 2, 0.5, -0.5, length - 0.5};
    }
  }
  int64_t blocks() const { return CeilDiv(points, kPoints); }
  bool nearest() const { return axes.nearest; }  // the gradient of the grid is 0
};

// The taps of a block of points, by tap and point: the element of a channel (-1: in the zero padding), its weight, and the derivatives of
// the weight by dimension. Uses memory of the caller.
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

  // For n points with the coordinates in `grid`, innermost dimension first. Returns whether no tap is in the padding.
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
      const Block block(g_, false, static_cast<std::byte*>(scratch) + ThreadIndex() * Block::Bytes(g_, false));
      const int64_t image = i / g_.blocks(), first = i % g_.blocks() * kPoints, n = std::min(kPoints, g_.points - first);
      const bool inside = block.Fill(g_, sampler_, grid + (image * g_.points + first) * g_.dims, n);
      for (int64_t c = image * g_.channels; c < (image + 1) * g_.channels; ++c) {
        const float* const x = all_x + c * g_.inputs;
        float* const y = all_y + c * g_.points + first;
        if (g_.taps == 4) {
          BestLoops().grid_samples(block.at, block.weight, x, n, inside, y);  // nearly all models
        } else if (!inside) {
          Sample<false>(block, x, n, y);
        } else if (g_.nearest()) {
          for (int64_t p = 0; p < n; ++p) y[p] = x[block.at[p]];
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

// gradloom.GridSampleGrad(x, grid, grad). Processes groups of channels of an image, interleaved so that a tap is one vector. Contributions
// to an element are summed in the order of the points, those to a point in the order of the groups.
class GridSampleGrad : public Kernel {
 public:
  explicit GridSampleGrad(const KernelCall& call)
      : sampler_(call), g_(call, sampler_), dx_(GradientOutputIndex(call, 0)), dgrid_(GradientOutputIndex(call, 1)), parts_(call, g_) {}

  static int64_t Scratch(const KernelCall& call) {
    const Geometry g(call, GridSampler(call));
    const Parts parts(call, g);
    return parts.threads * parts.ThreadBytes(g) + parts.SumsBytes(g);
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    auto* const memory = static_cast<std::byte*>(scratch);
    auto* const sums = reinterpret_cast<double*>(memory + parts_.threads * parts_.ThreadBytes(g_));
    ParallelFor(g_.batch * parts_.groups, parts_.threads, [&](int64_t part) {
      const int64_t image = part / parts_.groups, channel = part % parts_.groups * parts_.channels;
      Group group{.count = std::min(parts_.channels, g_.channels - channel),
                  .grid = static_cast<const float*>(inputs[1]) + image * g_.points * g_.dims,
                  .dy = static_cast<const float*>(inputs[2]) + (image * g_.channels + channel) * g_.points};
      const int64_t at = (image * g_.channels + channel) * g_.inputs;
      if (parts_.through_grid) group.x = static_cast<const float*>(inputs[0]) + at, group.dgrid = sums + part * g_.points * g_.dims;
      if (dx_ >= 0) group.dx = static_cast<float*>(outputs[dx_]) + at;
      RunGroup(group, memory + ThreadIndex() * parts_.ThreadBytes(g_));
    });
    if (dgrid_ < 0) return;
    const int64_t of_image = g_.points * g_.dims;
    if (g_.nearest()) {
      std::fill_n(static_cast<float*>(outputs[dgrid_]), g_.batch * of_image, 0.0f);
      return;
    }
    ParallelRanges(g_.batch * of_image, 1, parts_.threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const double* const terms = sums + i / of_image * parts_.groups * of_image + i % of_image;
        double sum = 0;
        for (int64_t group = 0; group < parts_.groups; ++group) sum += terms[group * of_image];
        static_cast<float*>(outputs[dgrid_])[i] = static_cast<float>(sum);
      }
    });
  }

 private:
  // The division of the channels into groups, and the work for each group.
  struct Parts {
    int64_t channels, groups;  // channels per group; the last group may have fewer
    int threads;
    bool to_x, through_grid;

    Parts(const KernelCall& call, const Geometry& g)
        : channels(GridLanes(g.channels)),
          groups(CeilDiv(g.channels, channels)),
          threads(static_cast<int>(std::min<int64_t>(g.batch * groups, GridSample::ThreadsOf(call, g)))),
          to_x(GradientOutputIndex(call, 0) >= 0),
          through_grid(GradientOutputIndex(call, 1) >= 0 && !g.nearest()) {}

    // Per thread: the taps of a block, the gradients of its points, and x and its gradient as far as needed, [inputs, channels].
    int64_t ThreadBytes(const Geometry& g) const {
      return Block::Bytes(g, through_grid) + 4 * channels * (kPoints + g.inputs * ((to_x ? 1 : 0) + (through_grid ? 1 : 0)));
    }
    // The gradients of the grid in float64, by image and group.
    int64_t SumsBytes(const Geometry& g) const { return through_grid ? 8 * g.batch * groups * g.points * g.dims : 0; }
  };

  // A group of channels of one image, not interleaved.
  struct Group {
    int64_t count;
    const float *grid, *dy;
    const float* x = nullptr;  // x and dgrid are null if dgrid is not wanted
    float* dx = nullptr;       // may be null
    double* dgrid = nullptr;
  };

  void RunGroup(const Group& group, std::byte* memory) const {
    const Loops& loops = BestLoops();
    const int64_t lanes = parts_.channels;
    const Block block(g_, parts_.through_grid, memory);
    auto* const dy = reinterpret_cast<float*>(memory + Block::Bytes(g_, parts_.through_grid));
    float *next = dy + lanes * kPoints, *x = nullptr, *dx = nullptr;
    // Lanes without a channel are zero.
    if (group.count < lanes) std::fill_n(dy, lanes * kPoints, 0.0f);
    if (group.dx != nullptr) {
      dx = next, next += lanes * g_.inputs;
      std::fill_n(dx, lanes * g_.inputs, 0.0f);
    }
    if (group.x != nullptr) {
      x = next;
      if (group.count < lanes) std::fill_n(x, lanes * g_.inputs, 0.0f);
      loops.transpose(group.x, g_.inputs, x, lanes, g_.inputs, group.count);
    }
    for (int64_t first = 0; first < g_.points; first += kPoints) {
      const int64_t n = std::min(kPoints, g_.points - first);
      block.Fill(g_, sampler_, group.grid + first * g_.dims, n);
      loops.transpose(group.dy + first, g_.points, dy, lanes, n, group.count);
      loops.grid_gradients({.n = n,
                            .taps = g_.taps,
                            .dims = g_.dims,
                            .channels = lanes,
                            .at = block.at,
                            .weight = block.weight,
                            .slope = block.slope,
                            .dy = dy,
                            .dx = dx,
                            .x = x,
                            .dgrid = group.dgrid == nullptr ? nullptr : group.dgrid + first * g_.dims});
    }
    if (dx != nullptr) loops.transpose(dx, lanes, group.dx, g_.inputs, group.count, g_.inputs);
  }

  GridSampler sampler_;
  Geometry g_;
  int64_t dx_, dgrid_;  // indices of the outputs, or -1
  Parts parts_;
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
