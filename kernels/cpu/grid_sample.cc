// GridSample over images and its gradient. What a point of the grid draws from is the same for all channels: it is worked out once for a
// few points at a time, and then read for one channel after the other.
#include <array>
#include <limits>

#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/reference/grid_taps.h"
#include "kernels/reference/wanted.h"

namespace gradloom {
namespace {

constexpr int64_t kTile = 128;  // points at a time
constexpr int64_t kMostTaps = int64_t{GridTaps::kMost} * GridTaps::kMost;
constexpr int64_t kTapsPerThread = 1 << 13;

// On the stack: 32 KiB.
struct TapTable {
  std::array<int, kMostTaps * kTile> at;
  std::array<float, kMostTaps * kTile> weight, slope_y, slope_x;
};

class GridPlanes {
 public:
  explicit GridPlanes(const KernelCall& call)
      : sampler_(call),
        loops_(BestLoops()),
        batch_(call.inputs[0].shape[0]),
        channels_(call.inputs[0].shape[1]),
        height_(call.inputs[0].shape[2]),
        width_(call.inputs[0].shape[3]),
        points_(Product(call.inputs[1].shape, 1, 3)),
        threads_(ThreadsFor(batch_ * channels_ * points_ * sampler_.num_taps() * sampler_.num_taps(), kTapsPerThread, call.threads)) {}

  const Loops& loops() const { return loops_; }
  int64_t batch() const { return batch_; }
  int64_t channels() const { return channels_; }
  int64_t inputs() const { return height_ * width_; }
  int64_t points() const { return points_; }
  int threads() const { return threads_; }
  int64_t tiles() const { return (points_ + kTile - 1) / kTile; }
  int64_t TileSize(int64_t tile) const { return std::min(kTile, points_ - tile * kTile); }

  // Of the points of a tile, whose coordinates these are: x and y of each.
  SampledTaps TapsOf(const float* grid, int64_t points, bool slopes, TapTable& table) const {
    const int each = sampler_.num_taps();
    for (int64_t p = 0; p < points; ++p) {
      const GridTaps y = sampler_.TapsOf(static_cast<double>(grid[2 * p + 1]), height_);
      const GridTaps x = sampler_.TapsOf(static_cast<double>(grid[2 * p]), width_);
      size_t to = static_cast<size_t>(p);
      for (size_t i = 0; i < static_cast<size_t>(each); ++i) {
        for (size_t j = 0; j < static_cast<size_t>(each); ++j, to += kTile) {
          table.at[to] = y.at[i] < 0 || x.at[j] < 0 ? -1 : static_cast<int>(y.at[i] * width_ + x.at[j]);
          table.weight[to] = static_cast<float>(y.weight[i] * x.weight[j]);
          if (!slopes) continue;
          table.slope_y[to] = static_cast<float>(y.slope[i] * x.weight[j]);
          table.slope_x[to] = static_cast<float>(y.weight[i] * x.slope[j]);
        }
      }
    }
    return {.points = points,
            .count = Index{each} * each,
            .stride = kTile,
            .at = table.at.data(),
            .weight = table.weight.data(),
            .slope_y = table.slope_y.data(),
            .slope_x = table.slope_x.data()};
  }

 private:
  const GridSampler sampler_;
  const Loops& loops_;
  int64_t batch_, channels_, height_, width_, points_;
  int threads_;
};

class GridSample : public Kernel {
 public:
  explicit GridSample(const KernelCall& call) : planes_(call) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const int64_t tiles = planes_.tiles(), channels = planes_.channels(), points = planes_.points();
    ParallelFor(planes_.batch() * tiles, planes_.threads(), [&](int64_t i) {
      TapTable table;
      const int64_t b = i / tiles, first = i % tiles * kTile;
      const float* grid = static_cast<const float*>(inputs[1]) + (b * points + first) * 2;
      const SampledTaps taps = planes_.TapsOf(grid, planes_.TileSize(i % tiles), false, table);
      for (int64_t c = b * channels; c < (b + 1) * channels; ++c) {
        const float* x = static_cast<const float*>(inputs[0]) + c * planes_.inputs();
        planes_.loops().sample_taps(taps, x, static_cast<float*>(outputs[0]) + c * points + first);
      }
    });
  }

 private:
  GridPlanes planes_;
};

// gradloom.GridSampleGrad(x, grid, dy) {wanted}
class GridSampleGrad : public Kernel {
 public:
  explicit GridSampleGrad(const KernelCall& call) : planes_(call), of_x_(PlaceOfGradient(call, 0)), of_grid_(PlaceOfGradient(call, 1)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto operand = [&](size_t i) { return static_cast<const float*>(inputs[i]); };
    if (of_x_ >= 0) Scatter(operand(1), operand(2), static_cast<float*>(outputs[of_x_]));
    if (of_grid_ >= 0) Slopes(operand(0), operand(1), operand(2), static_cast<float*>(outputs[of_grid_]));
  }

 private:
  // Each thread has planes of its own: points draw from one place together, whose sum is made in their order.
  void Scatter(const float* grid, const float* dy, float* dx) const {
    const int64_t channels = planes_.channels(), points = planes_.points(), inputs = planes_.inputs();
    ParallelRanges(planes_.batch() * channels, 1, planes_.threads(), [&](int64_t begin, int64_t end) {
      TapTable table;
      std::fill(dx + begin * inputs, dx + end * inputs, 0.0f);
      for (int64_t from = begin, to; from < end; from = to) {
        const int64_t b = from / channels;
        to = std::min(end, (b + 1) * channels);
        for (int64_t tile = 0; tile < planes_.tiles(); ++tile) {
          const SampledTaps taps = planes_.TapsOf(grid + (b * points + tile * kTile) * 2, planes_.TileSize(tile), false, table);
          for (int64_t c = from; c < to; ++c) AddTaps(taps, dy + c * points + tile * kTile, dx + c * inputs);
        }
      }
    });
  }

  static void AddTaps(const SampledTaps& taps, const float* dy, float* dx) {
    for (Index k = 0; k < taps.count; ++k) {
      const int* at = taps.at + k * taps.stride;
      const float* weight = taps.weight + k * taps.stride;
      for (Index p = 0; p < taps.points; ++p) {
        if (at[p] >= 0) dx[at[p]] += weight[p] * dy[p];
      }
    }
  }

  void Slopes(const float* x, const float* grid, const float* dy, float* dgrid) const {
    const int64_t tiles = planes_.tiles(), channels = planes_.channels(), points = planes_.points();
    ParallelFor(planes_.batch() * tiles, planes_.threads(), [&](int64_t i) {
      TapTable table;
      std::array<float, kTile> along_y{}, along_x{};
      const int64_t b = i / tiles, first = i % tiles * kTile, size = planes_.TileSize(i % tiles), place = (b * points + first) * 2;
      const SampledTaps taps = planes_.TapsOf(grid + place, size, true, table);
      for (int64_t c = b * channels; c < (b + 1) * channels; ++c)
        planes_.loops().sample_slopes(taps, x + c * planes_.inputs(), dy + c * points + first, along_y.data(), along_x.data());
      for (int64_t p = 0; p < size; ++p) {
        dgrid[place + 2 * p] = along_x[static_cast<size_t>(p)];
        dgrid[place + 2 * p + 1] = along_y[static_cast<size_t>(p)];
      }
    });
  }

  GridPlanes planes_;
  const int64_t of_x_, of_grid_;
};

// Images of float32, and a place in a plane is an int.
std::string RejectsImages(const KernelCall& call) {
  if (std::string why = RejectsAllBut(call, DType::kFloat32); !why.empty()) return why;
  const Shape &x = call.inputs[0].shape, &grid = call.inputs[1].shape;
  if (x.rank() != 4 || grid.rank() != 4 || grid[3] != 2 || grid[0] != x[0]) return "no images";
  const int64_t inputs = Product(x, 2, 4);
  return inputs == 0 || inputs > std::numeric_limits<int>::max() ? "empty or large planes" : "";
}

Shape SampledShape(const KernelCall& call) {
  const Shape &x = call.inputs[0].shape, &grid = call.inputs[1].shape;
  return {x[0], x[1], grid[1], grid[2]};
}

std::string RejectsForward(const KernelCall& call) {
  if (std::string why = RejectsImages(call); !why.empty()) return why;
  return call.outputs[0].shape == SampledShape(call) ? "" : "a result of another shape";
}

std::string RejectsGrad(const KernelCall& call) {
  if (std::string why = RejectsImages(call); !why.empty()) return why;
  if (call.inputs[2].shape != SampledShape(call)) return "a gradient of another shape";
  for (size_t i : {0, 1}) {
    const int64_t place = PlaceOfGradient(call, static_cast<int64_t>(i));
    const auto at = static_cast<size_t>(place);
    if (place >= 0 && (!HasOutput(call, at) || call.outputs[at].shape != call.inputs[i].shape)) return "results of other shapes";
  }
  return "";
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.GridSample", .op = "GridSample", .domain = "", .rejects = RejectsForward}, .make = MakeKernel<GridSample>},
    {.row = {.name = "cpu.GridSampleGrad", .op = "GridSampleGrad", .domain = "gradloom", .rejects = RejectsGrad},
     .make = MakeKernel<GridSampleGrad>},
};

}  // namespace

std::span<const CpuKernel> CpuGridSampleKernels() { return kKernels; }

}  // namespace gradloom
