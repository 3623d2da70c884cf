// Deformable convolution, whose taps are moved by offsets and weighted by a mask, and its gradients. Columns of samples, [channel and tap,
// point], are computed for one block of points at a time and multiplied by the weights while they are in the cache; the gradients recompute
// them.
#include "kernels/catalog/deform_conv.h"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <string>
#include <vector>

#include "kernels/catalog/pointwise.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/reference/wanted.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kPoints = kGridPoints;  // per block
constexpr int64_t kCorners = 4;           // pixels that a tap reads
constexpr int64_t kParts = 3;             // variables that a tap's sample depends on: its position in y and x, and the mask
constexpr int64_t kColumnChannels = 8;    // channels whose weight gradients a thread sums together
constexpr int64_t kSamplesPerThread = 1 << 13;

struct Geometry : DeformSizes {
  std::vector<int64_t> pads, strides, dilations;

  explicit Geometry(const KernelCall& call)
      : DeformSizes(call),
        pads(call.attributes.Ints("pads", {0, 0, 0, 0})),
        strides(call.attributes.Ints("strides", {1, 1})),
        dilations(call.attributes.Ints("dilations", {1, 1})) {}

  int64_t blocks() const { return CeilDiv(points(), kPoints); }
  int64_t depth() const { return group_channels() * taps(); }  // rows of columns that a filter reads
  int64_t offset_channels() const { return channels / offset_groups; }
  int threads(int64_t parts, int max_threads) const {
    return static_cast<int>(std::min<int64_t>(parts, ThreadsFor(planes() * taps() * points(), kSamplesPerThread, max_threads)));
  }
};

// The pixels that a block of points reads, by tap, with their weights times the mask. For gradients also the derivatives of the samples
// with respect to each of kParts. Uses memory of the caller.
struct Samples {
  int32_t* at;    // [taps, corners, kPoints]
  float* weight;  // like `at`
  float* slope;   // [taps, kParts, corners, kPoints], or null
  float* grid;    // [kPoints, 2]
  bool* inside;   // [taps]: whether all corners are inside the image

  static int64_t Bytes(const Geometry& g, bool slopes) {
    return AlignUp(4 * kPoints * (g.taps() * kCorners * (2 + (slopes ? kParts : 0)) + 2) + g.taps(), kAlignmentBytes);
  }
  Samples(const Geometry& g, bool slopes, std::byte* memory) : at(reinterpret_cast<int32_t*>(memory)) {
    const int64_t corners = g.taps() * kCorners * kPoints;
    weight = reinterpret_cast<float*>(at + corners);
    slope = slopes ? weight + corners : nullptr;
    grid = weight + corners * (slopes ? 1 + kParts : 1);
    inside = reinterpret_cast<bool*>(grid + 2 * kPoints);
  }

  // For the points [first, first + n) of an image and an offset group; `mask` may be null.
  void Fill(const Geometry& g, const float* offset, const float* mask, int64_t image, int64_t group, int64_t first, int64_t n) const {
    for (int64_t tap = 0; tap < g.taps(); ++tap) {
      const int64_t row = (image * g.offset_groups + group) * g.taps() + tap;
      const float* const down = offset + row * 2 * g.points() + first;
      const float* const along = down + g.points();
      for (int64_t p = 0; p < n; ++p) {
        const int64_t y = (first + p) / g.out[1], x = (first + p) % g.out[1];
        grid[2 * p] = static_cast<float>(x * g.strides[1] - g.pads[1] + tap % g.kernel[1] * g.dilations[1]) + along[p];
        grid[2 * p + 1] = static_cast<float>(y * g.strides[0] - g.pads[0] + tap / g.kernel[1] * g.dilations[0]) + down[p];
      }
      GridArgs args{};
      args.grid = grid, args.n = n;
      // Coordinates count pixels.
      args.height = {g.height, 1, 1, 0, static_cast<double>(g.height - 1)},
      args.width = {g.width, 1, 1, 0, static_cast<double>(g.width - 1)};
      args.padding = GridPadding::kZeros;
      args.at = at + tap * kCorners * kPoints, args.weight = weight + tap * kCorners * kPoints;
      args.slope = slope == nullptr ? nullptr : slope + tap * kParts * kCorners * kPoints;
      inside[tap] = BestLoops().grid_points(args);
      if (slope != nullptr) std::copy_n(args.weight, kCorners * kPoints, args.slope + 2 * kCorners * kPoints);
      if (mask != nullptr) {
        const float* const factor = mask + row * g.points() + first;
        for (int64_t corner = 0; corner < kCorners; ++corner) Scale(factor, n, args.weight + corner * kPoints);
        for (int64_t i = 0; slope != nullptr && i < 2 * kCorners; ++i) Scale(factor, n, args.slope + i * kPoints);
      }
    }
  }

  // Rows [channel - first, tap] of kPoints samples each, for channels [first, end) of an image x.
  void Columns(const Geometry& g, const float* x, int64_t first, int64_t end, int64_t n, float* columns) const {
    for (int64_t c = first; c < end; ++c) {
      for (int64_t tap = 0; tap < g.taps(); ++tap) {
        const int64_t corner = tap * kCorners * kPoints;
        BestLoops().grid_samples(at + corner, weight + corner, x + c * g.pixels(), n, inside[tap], columns);
        columns += kPoints;
      }
    }
  }

 private:
  static void Scale(const float* factor, int64_t n, float* to) {
    BestLoops().pointwise[static_cast<size_t>(PointwiseOp::kMul)]({to, factor, to, to, n});
  }
};

const float* Floats(const KernelCall& call, const void* const* inputs, size_t i) {
  return HasInput(call, i) ? static_cast<const float*>(inputs[i]) : nullptr;
}

class DeformConv : public Kernel {
 public:
  explicit DeformConv(const KernelCall& call) : call_(call), g_(call), threads_(g_.threads(g_.images * g_.blocks(), call.threads)) {}

  static int64_t Scratch(const KernelCall& call) {
    const Geometry g(call);
    return g.threads(g.images * g.blocks(), call.threads) * ThreadBytes(g);
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *x = Floats(call_, inputs, kDeformX), *w = Floats(call_, inputs, kDeformW), *bias = Floats(call_, inputs, kDeformBias);
    auto* const y = static_cast<float*>(outputs[0]);
    ParallelFor(g_.images * g_.blocks(), threads_, [&](int64_t task) {
      std::byte* const memory = static_cast<std::byte*>(scratch) + ThreadIndex() * ThreadBytes(g_);
      const Samples samples(g_, false, memory);
      auto* const columns = reinterpret_cast<float*>(memory + Samples::Bytes(g_, false));
      float* const pack = columns + g_.channels * g_.taps() * kPoints;
      const int64_t image = task / g_.blocks(), first = task % g_.blocks() * kPoints, n = std::min(kPoints, g_.points() - first);
      const int64_t each = g_.offset_channels();
      for (int64_t group = 0; group < g_.offset_groups; ++group) {
        samples.Fill(g_, Floats(call_, inputs, kDeformOffset), Floats(call_, inputs, kDeformMask), image, group, first, n);
        samples.Columns(g_, x + image * g_.channels * g_.pixels(), group * each, (group + 1) * each, n,
                        columns + group * each * g_.taps() * kPoints);
      }
      for (int64_t group = 0; group < g_.groups; ++group) {
        const int64_t filter = group * g_.group_filters();
        float* const to = y + (image * g_.filters + filter) * g_.points() + first;
        for (int64_t m = 0; m < g_.group_filters(); ++m) std::fill_n(to + m * g_.points(), n, bias == nullptr ? 0.0f : bias[filter + m]);
        MatrixArgs args{};
        args.m = g_.group_filters(), args.n = n, args.k = g_.depth();
        args.a = w + filter * g_.depth(), args.a_row = g_.depth(), args.a_col = 1;
        args.b = columns + group * g_.depth() * kPoints, args.b_row = kPoints, args.b_col = 1;
        args.c = to, args.c_row = g_.points(), args.alpha = 1, args.adds = true;
        BestLoops().matrix(args, pack);
      }
    });
  }

 private:
  static int64_t ThreadBytes(const Geometry& g) {
    return Samples::Bytes(g, false) +
           AlignUp(4 * (g.channels * g.taps() * kPoints + MatrixPackFloats(g.depth(), kPoints)), kAlignmentBytes);
  }

  KernelCall call_;
  Geometry g_;
  int threads_;
};

// gradloom.DeformConvGrad(the five of DeformConv, dy) {wanted}. For the gradients of x, offsets and mask, a thread takes an image and an
// offset group; for that of the weights, several channels in all images. So each sum has a fixed order.
class DeformConvGrad : public Kernel {
 public:
  explicit DeformConvGrad(const KernelCall& call) : call_(call), g_(call), parts_(call, g_) {}

  static int64_t Scratch(const KernelCall& call) {
    const Geometry g(call);
    const Parts parts(call, g);
    return std::max(parts.sample_threads * parts.SampleBytes(g), parts.weight_threads * parts.WeightBytes(g));
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    auto* const memory = static_cast<std::byte*>(scratch);
    if (parts_.moves || parts_.to_x) {
      ParallelFor(g_.images * g_.offset_groups, parts_.sample_threads, [&](int64_t task) {
        ThroughSamples(inputs, outputs, task / g_.offset_groups, task % g_.offset_groups, memory + ThreadIndex() * parts_.SampleBytes(g_));
      });
    }
    if (GradientOf(call_, outputs, kDeformW) != nullptr) {
      ParallelFor(parts_.weight_tasks(g_), parts_.weight_threads,
                  [&](int64_t task) { OfWeights(inputs, outputs, task, memory + ThreadIndex() * parts_.WeightBytes(g_)); });
    }
    if (auto* const dbias = static_cast<float*>(GradientOf(call_, outputs, kDeformBias)); dbias != nullptr) {
      const auto* const dy = static_cast<const float*>(inputs[kDeformInputs]);
      ParallelFor(g_.filters, parts_.weight_threads, [&](int64_t m) {
        double sum = 0;
        for (int64_t image = 0; image < g_.images; ++image)
          sum += static_cast<double>(
              BestLoops().reduce_row[static_cast<size_t>(Reduction::kSum)](dy + (image * g_.filters + m) * g_.points(), g_.points()));
        dbias[m] = static_cast<float>(sum);
      });
    }
  }

 private:
  struct Parts {
    bool to_x, moves;  // whether gradients are wanted: of x, and of offsets or mask
    int64_t lanes;     // number of interleaved channels
    int sample_threads, weight_threads;

    Parts(const KernelCall& call, const Geometry& g)
        : to_x(GradientOutputIndex(call, kDeformX) >= 0),
          moves(GradientOutputIndex(call, kDeformOffset) >= 0 || GradientOutputIndex(call, kDeformMask) >= 0),
          lanes(GridLanes(g.offset_channels())),
          sample_threads(g.threads(g.images * g.offset_groups, call.threads)),
          weight_threads(g.threads(weight_tasks(g), call.threads)) {}

    int64_t tiles(const Geometry& g) const { return CeilDiv(g.offset_channels(), lanes); }
    // Channels of one group and one offset group, at most kColumnChannels.
    static int64_t ColumnChannels(const Geometry& g) {
      int64_t channels = std::min({kColumnChannels, g.offset_channels(), g.group_channels()});
      while (g.offset_channels() % channels != 0 || g.group_channels() % channels != 0) --channels;
      return channels;
    }
    static int64_t weight_tasks(const Geometry& g) { return g.channels / ColumnChannels(g); }

    // Samples; x and its gradient, [tiles, pixels, lanes]; the gradients of a block's columns, [lanes, taps, kPoints], and memory for
    // packing; the same for one tap, [kPoints, lanes]; and float64 sums by tap and point for offsets and mask.
    int64_t SampleBytes(const Geometry& g) const {
      const int64_t planes = tiles(g) * g.pixels() * lanes;
      return Samples::Bytes(g, true) + AlignUp(8 * (g.taps() + 1) * kPoints * kParts + 4 * (2 * planes + lanes * (g.taps() + 1) * kPoints +
                                                                                            MatrixPackFloats(g.group_filters(), kPoints)),
                                               kAlignmentBytes);
    }
    // Samples; the columns of a block, and memory for packing them.
    int64_t WeightBytes(const Geometry& g) const {
      const int64_t rows = ColumnChannels(g) * g.taps();
      return Samples::Bytes(g, false) + AlignUp(4 * (rows * kPoints + MatrixPackFloats(kPoints, rows)), kAlignmentBytes);
    }
  };

  void ThroughSamples(const void* const* inputs, void* const* outputs, int64_t image, int64_t group, std::byte* memory) const {
    const Loops& loops = BestLoops();
    const int64_t lanes = parts_.lanes, each = g_.offset_channels(), plane = g_.pixels() * lanes, points = g_.points();
    const Samples samples(g_, true, memory);
    auto* const sums = reinterpret_cast<double*>(memory + Samples::Bytes(g_, true));
    double* const of_tap = sums + g_.taps() * kPoints * kParts;
    auto* const all_x = reinterpret_cast<float*>(of_tap + kPoints * kParts);
    float *const all_dx = all_x + parts_.tiles(g_) * plane, *const columns = all_dx + parts_.tiles(g_) * plane;
    float *const tap_columns = columns + lanes * g_.taps() * kPoints, *const pack = tap_columns + lanes * kPoints;
    const auto* const x = static_cast<const float*>(inputs[kDeformX]) + (image * g_.channels + group * each) * g_.pixels();
    std::fill_n(all_x, 2 * parts_.tiles(g_) * plane, 0.0f);  // also the lanes without a channel
    for (int64_t first = 0; first < each; first += lanes)
      loops.transpose(x + first * g_.pixels(), g_.pixels(), all_x + first * g_.pixels(), lanes, g_.pixels(), std::min(lanes, each - first));
    for (int64_t first = 0; first < points; first += kPoints) {
      const int64_t n = std::min(kPoints, points - first);
      samples.Fill(g_, Floats(call_, inputs, kDeformOffset), Floats(call_, inputs, kDeformMask), image, group, first, n);
      std::fill_n(sums, g_.taps() * kPoints * kParts, 0.0);
      for (int64_t channel = 0; channel < each; channel += lanes) {
        const int64_t count = std::min(lanes, each - channel);
        ToColumns(inputs, image, group * each + channel, count, first, n, columns, pack);
        std::fill_n(tap_columns, lanes * kPoints, 0.0f);
        for (int64_t tap = 0; tap < g_.taps(); ++tap) {
          const int64_t corner = tap * kCorners * kPoints;
          loops.transpose(columns + tap * kPoints, g_.taps() * kPoints, tap_columns, lanes, n, count);
          loops.grid_gradients({.n = n,
                                .taps = kCorners,
                                .dims = kParts,
                                .channels = lanes,
                                .at = samples.at + corner,
                                .weight = samples.weight + corner,
                                .slope = samples.slope + corner * kParts,
                                .dy = tap_columns,
                                .dx = parts_.to_x ? all_dx + channel * g_.pixels() : nullptr,
                                .x = parts_.moves ? all_x + channel * g_.pixels() : nullptr,
                                .dgrid = of_tap});
          double* const to = sums + tap * kPoints * kParts;
          for (int64_t i = 0; parts_.moves && i < n * kParts; ++i) to[i] += of_tap[i];
        }
      }
      if (parts_.moves) StoreMoves(outputs, image, group, first, n, sums);
    }
    auto* const dx = static_cast<float*>(GradientOf(call_, outputs, kDeformX));
    for (int64_t channel = 0; dx != nullptr && channel < each; channel += lanes) {
      loops.transpose(all_dx + channel * g_.pixels(), lanes, dx + (image * g_.channels + group * each + channel) * g_.pixels(), g_.pixels(),
                      std::min(lanes, each - channel), g_.pixels());
    }
  }

  // The gradients of the columns of `count` channels, [count, taps, kPoints].
  void ToColumns(const void* const* inputs, int64_t image, int64_t channel, int64_t count, int64_t first, int64_t n, float* columns,
                 float* pack) const {
    const int64_t in = g_.group_channels(), out = g_.group_filters();
    for (int64_t begin = channel; begin < channel + count;) {
      const int64_t group = begin / in, end = std::min(channel + count, (group + 1) * in);
      MatrixArgs args{};
      args.m = (end - begin) * g_.taps(), args.n = n, args.k = out;
      args.a = static_cast<const float*>(inputs[kDeformW]) + group * out * g_.depth() + begin % in * g_.taps(), args.a_row = 1,
      args.a_col = g_.depth();
      args.b = static_cast<const float*>(inputs[kDeformInputs]) + (image * g_.filters + group * out) * g_.points() + first;
      args.b_row = g_.points(), args.b_col = 1;
      args.c = columns + (begin - channel) * g_.taps() * kPoints, args.c_row = kPoints, args.alpha = 1;
      BestLoops().matrix(args, pack);
      begin = end;
    }
  }

  // From sums [taps, n, (mask, x, y)].
  void StoreMoves(void* const* outputs, int64_t image, int64_t group, int64_t first, int64_t n, const double* sums) const {
    auto *const doffset = static_cast<float*>(GradientOf(call_, outputs, kDeformOffset)), *const dmask = static_cast<float*>(
                                                                                              GradientOf(call_, outputs, kDeformMask));
    for (int64_t tap = 0; tap < g_.taps(); ++tap, sums += kPoints * kParts) {
      const int64_t row = (image * g_.offset_groups + group) * g_.taps() + tap, points = g_.points();
      for (int64_t p = 0; p < n; ++p) {
        if (dmask != nullptr) dmask[row * points + first + p] = static_cast<float>(sums[p * kParts]);
        if (doffset == nullptr) continue;
        doffset[row * 2 * points + first + p] = static_cast<float>(sums[p * kParts + 2]);
        doffset[(row * 2 + 1) * points + first + p] = static_cast<float>(sums[p * kParts + 1]);
      }
    }
  }

  void OfWeights(const void* const* inputs, void* const* outputs, int64_t task, std::byte* memory) const {
    const int64_t count = parts_.ColumnChannels(g_), channel = task * count, rows = count * g_.taps();
    const int64_t in = g_.group_channels(), group = channel / in, filter = group * g_.group_filters();
    const Samples samples(g_, false, memory);
    auto* const columns = reinterpret_cast<float*>(memory + Samples::Bytes(g_, false));
    float* const pack = columns + rows * kPoints;
    MatrixArgs args{};
    args.m = g_.group_filters(), args.n = rows;
    args.a_row = g_.points(), args.a_col = 1;
    args.b = columns, args.b_row = 1, args.b_col = kPoints;
    args.c = static_cast<float*>(GradientOf(call_, outputs, kDeformW)) + filter * g_.depth() + channel % in * g_.taps(),
    args.c_row = g_.depth();
    args.alpha = 1;
    for (int64_t image = 0; image < g_.images; ++image) {
      for (int64_t first = 0; first < g_.points(); first += kPoints) {
        args.k = std::min(kPoints, g_.points() - first);
        samples.Fill(g_, Floats(call_, inputs, kDeformOffset), Floats(call_, inputs, kDeformMask), image, channel / g_.offset_channels(),
                     first, args.k);
        samples.Columns(g_, static_cast<const float*>(inputs[kDeformX]) + image * g_.channels * g_.pixels(), channel, channel + count,
                        args.k, columns);
        args.a = static_cast<const float*>(inputs[kDeformInputs]) + (image * g_.filters + filter) * g_.points() + first;
        BestLoops().matrix(args, pack);
        args.adds = true;
      }
    }
  }

  KernelCall call_;
  Geometry g_;
  Parts parts_;
};

// The reference kernel reports operands that do not fit.
std::string Rejects(const KernelCall& call) {
  if (std::string why = RejectsAllBut(call, DType::kFloat32); !why.empty()) return why;
  if (call.inputs.size() < (call.op == "DeformConvGrad" ? kDeformInputs + 1 : 3) || call.outputs.empty()) return "operands are missing";
  const Shape &x = call.inputs[kDeformX].shape, &w = call.inputs[kDeformW].shape, &y = DeformOutputShape(call);
  if (x.rank() != 4 || w.rank() != 4 || y.rank() != 4) return "no planes";
  if (x.elements() == 0 || w.elements() == 0 || y.elements() == 0) return "nothing to compute";
  if (!DeformFits(call)) return "operands that do not fit";
  const bool fits = y[0] == x[0] && y[1] == w[0] && (!HasInput(call, kDeformBias) || call.inputs[kDeformBias].shape == Shape{w[0]});
  if (!fits) return "operands that do not fit";
  return x[2] * x[3] > INT_MAX ? "more pixels than an int counts" : "";
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.DeformConv", .op = "DeformConv", .domain = "", .rejects = Rejects, .scratch_bytes = DeformConv::Scratch},
     .make = MakeKernel<DeformConv>},
    {.row = {.name = "cpu.DeformConvGrad",
             .op = "DeformConvGrad",
             .domain = "gradloom",
             .rejects = Rejects,
             .scratch_bytes = DeformConvGrad::Scratch},
     .make = MakeKernel<DeformConvGrad>},
};

}  // namespace

std::span<const CpuKernel> CpuDeformConvKernels() { return kKernels; }

}  // namespace gradloom
