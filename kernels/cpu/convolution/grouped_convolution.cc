#include "kernels/cpu/convolution/grouped_convolution.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/catalog/convolution.h"
#include "kernels/catalog/physical.h"
#include "kernels/cpu/convolution/convolution_desc.h"
#include "kernels/cpu/convolution/small_groups.h"
#include "kernels/cpu/convolution/weight_gradients.h"
#include "kernels/cpu/convolution/window_axis.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kGroupedPoints = 256;  // points of dy whose outer products a tile computes at once
constexpr int64_t kGroupedProducts = 1 << 17;
constexpr int64_t kMaxGroupedWeights = 1 << 22;
constexpr int64_t kMinGroupedChannels = 4;

// x[N, H, W, groups I], y[N, OH, OW, groups O] and w[groups O, I, KH, KW] of the forward convolution; a missing height is 1.
struct GroupedSizes {
  int64_t images, groups, inputs, outputs;  // channels per group
  WindowAxis height, width;
  int64_t panel = BestLoops().matrix_panel;
  std::vector<int64_t> output_offsets, input_offsets, tap_offsets;  // offsets in w

  GroupedSizes(const ConvolutionOperands& of, int64_t group, const Attributes& windows) {
    const Shape &x = of.x->shape, &y = of.y->shape, &w = of.w->shape;
    std::tie(height, width) = WindowAxesOf(windows, x, y, w);
    images = x[0], groups = group, inputs = w[1], outputs = w[0] / group;
    output_offsets = AxisOffsets(*of.w, 0), input_offsets = AxisOffsets(*of.w, 1);
    const std::vector<int64_t> rows = w.rank() == 4 ? AxisOffsets(*of.w, 2) : std::vector<int64_t>{0},
                               columns = AxisOffsets(*of.w, w.rank() - 1);
    for (int64_t row : rows) {
      for (int64_t column : columns) tap_offsets.push_back(row + column);
    }
  }
  explicit GroupedSizes(const KernelCall& call)
      : GroupedSizes(ConvolutionOperandsOf(call), call.attributes.Int("group", 1), WindowsOfConvolution(call).ToAttributes()) {}

  int64_t taps() const { return height.taps * width.taps; }
  int64_t x_channels() const { return groups * inputs; }
  int64_t y_channels() const { return groups * outputs; }
};

// Computes each row of the result, group by group. For each tap, multiplies the points of a row by the tap's weights, and adds the products
// at their positions.
class GroupedConv : public Kernel {
 public:
  explicit GroupedConv(const KernelCall& call)
      : n_(call),
        transposed_(Transposed(call)),
        has_bias_(HasConvolutionBias(call)),
        threads_(Threads(call)),
        loops_(BestLoops()),
        in_(transposed_ ? n_.outputs : n_.inputs),
        out_(transposed_ ? n_.inputs : n_.outputs) {
    source_.assign(static_cast<size_t>(Packed(n_, transposed_)), -1);
    int32_t* to = source_.data();
    for (int64_t group = 0; group < n_.groups; ++group) {
      for (const int64_t tap : n_.tap_offsets) {
        for (int64_t column = 0; column < out_; ++column) {
          for (int64_t k = 0; k < in_; ++k) {
            const int64_t o = group * n_.outputs + (transposed_ ? k : column), i = transposed_ ? column : k;
            const int64_t place = tap + n_.output_offsets[static_cast<size_t>(o)] + n_.input_offsets[static_cast<size_t>(i)];
            to[(column / n_.panel * in_ + k) * n_.panel + column % n_.panel] = static_cast<int32_t>(place);
          }
        }
        to += OfTap(n_, transposed_);
      }
    }
  }

  static int64_t Scratch(const KernelCall& call) {
    const GroupedSizes n(call);
    const bool transposed = Transposed(call);
    return (Packed(n, transposed) + Threads(call) * Row(n, transposed)) * static_cast<int64_t>(sizeof(float));
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *from = static_cast<const float*>(inputs[0]), *w = static_cast<const float*>(inputs[1]);
    const auto* bias = has_bias_ ? static_cast<const float*>(inputs[2]) : nullptr;
    auto *to = static_cast<float*>(outputs[0]), *weights = static_cast<float*>(scratch);
    for (size_t i = 0; i < source_.size(); ++i) weights[i] = source_[i] < 0 ? 0.0f : w[source_[i]];
    const int64_t rows = transposed_ ? n_.height.in : n_.height.out, width = transposed_ ? n_.width.in : n_.width.out;
    ParallelFor(n_.images * rows, threads_, [&](int64_t i) {
      float* const row = weights + Packed(n_, transposed_) + ThreadIndex() * Row(n_, transposed_);
      for (int64_t group = 0; group < n_.groups; ++group) {
        MakeRow(from, i / rows, i % rows, group, weights, bias, row);
        float* at = to + i * width * n_.groups * out_ + group * out_;
        for (int64_t point = 0; point < width; ++point, at += n_.groups * out_)
          std::copy_n(row + point * PaddedChannels(n_, transposed_), out_, at);
      }
    });
  }

 private:
  static bool Transposed(const KernelCall& call) { return call.op != "Conv"; }
  static int Threads(const KernelCall& call) {
    const ConvolutionOperands of = ConvolutionOperandsOf(call);
    return ThreadsFor(of.y->shape.elements() * (of.w->shape.elements() / of.w->shape[0]), kGroupedProducts, call.threads);
  }
  // Floats: for a point of the current row, for a tap's weights in a group, for all weights, and for a row.
  static int64_t PaddedChannels(const GroupedSizes& n, bool transposed) {
    return AlignUp(transposed ? n.inputs : n.outputs, static_cast<int64_t>(BestLoops().ring_lines));
  }
  static int64_t OfTap(const GroupedSizes& n, bool transposed) {
    return AlignUp(transposed ? n.inputs : n.outputs, n.panel) * (transposed ? n.outputs : n.inputs);
  }
  static int64_t Packed(const GroupedSizes& n, bool transposed) { return n.groups * n.taps() * OfTap(n, transposed); }
  static int64_t Row(const GroupedSizes& n, bool transposed) {
    return AlignUp((transposed ? n.width.in : n.width.out) * PaddedChannels(n, transposed), 16);
  }

  void MakeRow(const float* from, int64_t image, int64_t h, int64_t group, const float* weights, const float* bias, float* row) const {
    const int64_t wide = PaddedChannels(n_, transposed_), channels = n_.groups * in_;
    const int64_t width = transposed_ ? n_.width.in : n_.width.out, from_width = transposed_ ? n_.width.out : n_.width.in;
    std::fill_n(row, width * wide, 0.0f);
    for (int64_t point = 0; point < width && bias != nullptr; ++point) std::copy_n(bias + group * out_, out_, row + point * wide);
    MatrixArgs args = {.m = 0,
                       .n = wide,
                       .k = in_,
                       .a = nullptr,
                       .b = nullptr,
                       .a_row = channels * (transposed_ ? 1 : n_.width.stride),
                       .a_col = 1,
                       .b_row = 0,
                       .b_col = 0,
                       .bias = nullptr,
                       .bias_step = 0,
                       .c = nullptr,
                       .c_row = wide * (transposed_ ? n_.width.stride : 1),
                       .alpha = 1,
                       .beta = 0,
                       .adds = true};
    const float* of_tap = weights + group * n_.taps() * OfTap(n_, transposed_);
    for (int64_t kh = 0; kh < n_.height.taps; ++kh, of_tap += n_.width.taps * OfTap(n_, transposed_)) {
      const int64_t from_row = SourceRow(h, kh);
      if (from_row < 0) continue;
      const float* const at =
          from + ((image * (transposed_ ? n_.height.out : n_.height.in) + from_row) * from_width) * channels + group * in_;
      for (int64_t kw = 0; kw < n_.width.taps; ++kw) {
        const WindowAxis::Range under = n_.width.OutputRange(kw);
        if (under.begin == under.end) continue;
        args.m = under.end - under.begin;
        args.a = at + (transposed_ ? under.begin : under.first) * channels;
        args.c = row + (transposed_ ? under.first : under.begin) * wide;
        loops_.multiply_packed(args, of_tap + kw * OfTap(n_, transposed_));
      }
    }
  }

  // The row of the other operand that row h of the result depends on through row kh of the windows, or -1.
  int64_t SourceRow(int64_t h, int64_t kh) const {
    const WindowAxis& axis = n_.height;
    if (!transposed_) {
      const int64_t row = h * axis.stride + kh * axis.dilation - axis.pad;
      return row < axis.in ? row : -1;
    }
    const int64_t above = h + axis.pad - kh * axis.dilation;
    return above >= 0 && above % axis.stride == 0 && above / axis.stride < axis.out ? above / axis.stride : -1;
  }

  const GroupedSizes n_;
  const bool transposed_, has_bias_;
  const int threads_;
  const Loops& loops_;
  const int64_t in_, out_;       // channels per group of the operand and of the result
  std::vector<int32_t> source_;  // by position in the packed weights: the element of w, or -1
};

// For each panel of dy's channels in a group: packs the points of dy, a chunk of rows at a time, and computes their outer products with
// those of x under each tap. Chunks are added in order, whatever the number of threads.
class GroupedGradWeight : public Kernel {
 public:
  explicit GroupedGradWeight(const KernelCall& call) : n_(call), threads_(Threads(call)), loops_(BestLoops()) {
    weights_ = call.outputs[0].layout.elements(call.outputs[0].shape);
    padded_ = weights_ != call.outputs[0].shape.elements();
  }

  static int64_t Scratch(const KernelCall& call) { return Threads(call) * Own(GroupedSizes(call)) * static_cast<int64_t>(sizeof(float)); }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *x = static_cast<const float*>(inputs[0]), *dy = static_cast<const float*>(inputs[1]);
    auto* dw = static_cast<float*>(outputs[0]);
    if (padded_) std::fill_n(dw, weights_, 0.0f);
    const int64_t panels = CeilDiv(n_.outputs, n_.panel);
    ParallelFor(n_.groups * panels, threads_, [&](int64_t i) {
      MakePanel(x, dy, i / panels, i % panels * n_.panel, static_cast<float*>(scratch) + ThreadIndex() * Own(n_), dw);
    });
  }

 private:
  static int Threads(const KernelCall& call) { return ThreadsFor(ProductsOfWeightGradient(call), kGroupedProducts, call.threads); }
  static int64_t XTiles(const GroupedSizes& n) { return CeilDiv(n.inputs, static_cast<int64_t>(BestLoops().panel_rows)); }
  static int64_t Tile(const GroupedSizes& n) { return BestLoops().panel_rows * n.panel; }
  static int64_t Rows(const GroupedSizes& n) { return std::clamp<int64_t>(kGroupedPoints / n.width.out, 1, n.height.out); }
  static int64_t Sums(const GroupedSizes& n) { return XTiles(n) * n.taps() * Tile(n); }
  static int64_t Own(const GroupedSizes& n) { return AlignUp(Sums(n) + Rows(n) * n.width.out * n.panel, 16); }  // floats per thread
  int64_t FirstInput(int64_t tile) const { return n_.inputs * tile / XTiles(n_); }

  void MakePanel(const float* x, const float* dy, int64_t group, int64_t output, float* sums, float* dw) const {
    const int64_t outputs = std::min(n_.panel, n_.outputs - output), rows = Rows(n_), columns = n_.width.out;
    float* const packed = sums + Sums(n_);
    std::fill_n(sums, Sums(n_), 0.0f);
    std::fill_n(packed, rows * columns * n_.panel, 0.0f);
    std::vector<OuterRun> runs(static_cast<size_t>(rows));
    for (int64_t image = 0; image < n_.images; ++image) {
      for (int64_t row = 0; row < n_.height.out; row += rows) {
        const int64_t count = std::min(rows, n_.height.out - row);
        const float* from = dy + (image * n_.height.out + row) * columns * n_.y_channels() + group * n_.outputs + output;
        for (int64_t p = 0; p < count * columns; ++p, from += n_.y_channels()) std::copy_n(from, outputs, packed + p * n_.panel);
        AddTaps(x + image * n_.height.in * n_.width.in * n_.x_channels() + group * n_.inputs, row, count, outputs, packed, runs, sums);
      }
    }
    for (int64_t tile = 0; tile < XTiles(n_); ++tile) {
      for (int64_t tap = 0; tap < n_.taps(); ++tap) {
        const float* at = sums + (tile * n_.taps() + tap) * Tile(n_);
        for (int64_t i = FirstInput(tile); i < FirstInput(tile + 1); ++i, at += n_.panel) {
          float* const to = dw + n_.tap_offsets[static_cast<size_t>(tap)] + n_.input_offsets[static_cast<size_t>(i)];
          for (int64_t o = 0; o < outputs; ++o) to[n_.output_offsets[static_cast<size_t>(group * n_.outputs + output + o)]] = at[o];
        }
      }
    }
  }

  void AddTaps(const float* x, int64_t row, int64_t rows, int64_t outputs, const float* packed, std::vector<OuterRun>& runs,
               float* sums) const {
    for (int64_t tap = 0; tap < n_.taps(); ++tap) {
      const WindowAxis::Range under = n_.width.OutputRange(tap % n_.width.taps);
      if (under.begin == under.end) continue;
      Index count = 0;
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t h = (row + r) * n_.height.stride + tap / n_.width.taps * n_.height.dilation - n_.height.pad;
        if (h < 0 || h >= n_.height.in) continue;
        runs[static_cast<size_t>(count++)] = {.a = (h * n_.width.in + under.first) * n_.x_channels(),
                                              .b = (r * n_.width.out + under.begin) * n_.panel,
                                              .points = under.end - under.begin};
      }
      if (count == 0) continue;
      for (int64_t tile = 0; tile < XTiles(n_); ++tile) {
        loops_.add_outer_products({.rows = FirstInput(tile + 1) - FirstInput(tile),
                                   .columns = outputs,
                                   .a = x + FirstInput(tile),
                                   .a_step = n_.width.stride * n_.x_channels(),
                                   .b = packed,
                                   .runs = runs.data(),
                                   .count = count,
                                   .c = sums + (tile * n_.taps() + tap) * Tile(n_),
                                   .adds = true});
      }
    }
  }

  const GroupedSizes n_;
  const int threads_;
  const Loops& loops_;
  int64_t weights_;  // elements of dw, including padding
  bool padded_;
};

// "" if the call would be served with x and y in channels-last order, whatever their present layouts.
std::string RejectsGroupedShapes(const KernelCall& call) {
  if (BestLoops().name == std::string_view("baseline")) return "a machine without AVX2";
  if (std::string why = RejectsElements(call); !why.empty()) return why;
  const ConvolutionOperands of = ConvolutionOperandsOf(call);
  const Shape &x = of.x->shape, &y = of.y->shape, &w = of.w->shape;
  const int rank = x.rank();
  if (rank < 3 || rank > 4 || y.rank() != rank || w.rank() != rank) return "rank " + std::to_string(rank);
  const int64_t groups = call.attributes.Int("group", 1);
  if (groups < 2 || y[0] != x[0] || y[1] != w[0] || x[1] != groups * w[1] || w[0] % groups != 0) return "no groups, or other channels";
  if (std::min(w[1], w[0] / groups) < kMinGroupedChannels) return "few channels";
  const int64_t packed = w.elements() / w[1] / w[0] * groups * AlignUp(w[1], 32) * AlignUp(w[0] / groups, 32);
  if (packed > kMaxGroupedWeights || of.w->layout.elements(w) > INT32_MAX) return "many weights";
  if (HasConvolutionBias(call) && !call.inputs[2].layout.plain()) return "bias";
  if (ServesSmallGroups(call)) return "";
  // The library is faster if it is vectorized for these channels per group and does not pad the weights.
  return IsVectorizedChannelsLast(call) ? "the library has a vectorized implementation" : "";
}

std::string RejectsGrouped(const KernelCall& call) {
  const ConvolutionOperands of = ConvolutionOperandsOf(call);
  for (const OperandType* operand : {of.x, of.y}) {
    if (operand->shape.rank() < 3) return "rank " + std::to_string(operand->shape.rank());
    if (!SameMemoryOrder(operand->layout, ChannelsLast(operand->shape.rank()), operand->shape))
      return "layout " + operand->layout.ToString();
  }
  return RejectsGroupedShapes(call);
}

int64_t GradWeightScratch(const KernelCall& call) {
  return ServesSmallGroups(call) ? SmallGroupsScratch(call) : GroupedGradWeight::Scratch(call);
}

std::unique_ptr<Kernel> MakeGradWeight(const KernelCall& call) {
  if (ServesSmallGroups(call)) return MakeSmallGroups(call);
  return std::make_unique<GroupedGradWeight>(call);
}

template <typename T>
constexpr CpuKernel GroupedRow(std::string_view name, std::string_view op, std::string_view domain) {
  return {.row = {.name = name, .op = op, .domain = domain, .rejects = RejectsGrouped, .scratch_bytes = T::Scratch}, .make = MakeKernel<T>};
}

constexpr CpuKernel kKernels[] = {
    GroupedRow<GroupedConv>("cpu.GroupedConv", "Conv", ""),
    GroupedRow<GroupedConv>("cpu.GroupedConvTranspose", "ConvTranspose", ""),
    GroupedRow<GroupedConv>("cpu.GroupedConvGradInput", "ConvGradInput", "gradloom"),
    {.row = {.name = "cpu.GroupedConvGradWeight",
             .op = "ConvGradWeight",
             .domain = "gradloom",
             .rejects = RejectsGrouped,
             .scratch_bytes = GradWeightScratch},
     .make = MakeGradWeight},
};

}  // namespace

bool PrefersGroupedConvolution(KernelCall& call) {
  if (!RejectsGroupedShapes(call).empty()) return false;
  SetConvolutionLayouts(call, std::nullopt);
  return true;
}

std::span<const CpuKernel> CpuGroupedConvolutionKernels() { return kKernels; }

}  // namespace gradloom
