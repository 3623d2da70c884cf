#include "kernels/cpu/convolution/depthwise_convolution.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/catalog/convolution.h"
#include "kernels/catalog/physical.h"
#include "kernels/cpu/convolution/channel_multiplier.h"
#include "kernels/cpu/convolution/convolution_desc.h"
#include "kernels/cpu/convolution/window_axis.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kProductsPerThread = 1 << 16;

bool Transposed(const KernelCall& call) { return call.op != "Conv"; }

// A tap of the windows along one axis, and the position of the operand that it multiplies.
struct Tap {
  int64_t from, tap;
};

// The taps that contribute to a position of the result along an axis, in order. The result is y, or if transposed, x.
std::vector<Tap> TapsAt(const WindowAxis& axis, bool transposed, int64_t position) {
  std::vector<Tap> taps;
  for (int64_t k = 0; k < axis.taps; ++k) {
    if (!transposed) {
      const int64_t from = position * axis.stride + k * axis.dilation - axis.pad;
      if (from >= 0 && from < axis.in) taps.push_back({from, k});
      continue;
    }
    const int64_t above = position + axis.pad - k * axis.dilation;
    if (above >= 0 && above % axis.stride == 0 && above / axis.stride < axis.out) taps.push_back({above / axis.stride, k});
  }
  return taps;
}

// Points of a row of the result to which the same taps contribute. They are a stride apart if transposed, and adjacent otherwise; for their
// operands it is the other way round. `taps` are those of the first.
struct PointRun {
  int64_t first, points;
  std::vector<Tap> taps;
};

std::vector<PointRun> RunsOf(const WindowAxis& axis, bool transposed) {
  const int64_t positions = transposed ? axis.in : axis.out, step = transposed ? axis.stride : 1, from_step = transposed ? 1 : axis.stride;
  std::vector<PointRun> runs;
  for (int64_t remainder = 0; remainder < step; ++remainder) {
    const size_t begin = runs.size();
    for (int64_t position = remainder; position < positions; position += step) {
      std::vector<Tap> taps = TapsAt(axis, transposed, position);
      bool same = runs.size() > begin && runs.back().taps.size() == taps.size();
      for (size_t i = 0; same && i < taps.size(); ++i) {
        const Tap& first = runs.back().taps[i];
        same = taps[i].tap == first.tap && taps[i].from == first.from + runs.back().points * from_step;
      }
      if (same) {
        ++runs.back().points;
      } else {
        runs.push_back({position, 1, std::move(taps)});
      }
    }
  }
  return runs;
}

// The order of dimensions in which the weights of a tap are contiguous.
Layout TapsOutermost(int rank) {
  Layout layout;
  for (int axis = 2; axis < rank; ++axis) layout.order.push_back(axis);
  layout.order.push_back(1);
  layout.order.push_back(0);
  return layout;
}

// The result of Conv, y[N, OD, OH, OW, C], from x[N, D, H, W, C / M], w[C, 1, KD, KH, KW] and a bias, or that of ConvGradInput and
// ConvTranspose, x from y; a missing depth or height is 1. Sums run over the taps in order. With M > 1 filters for each channel of x, an
// image of x is repeated to C channels before it is read, and a row of x is summed from one of C channels.
class DepthwiseConvolution : public Kernel {
 public:
  explicit DepthwiseConvolution(const KernelCall& call)
      : loops_(BestLoops()), transposed_(Transposed(call)), has_bias_(HasConvolutionBias(call)), threads_(Threads(call)) {
    const ConvolutionOperands of = ConvolutionOperandsOf(call);
    const Shape& w = of.w->shape;
    axes_ = VolumeAxesOf(WindowsOfConvolution(call).ToAttributes(), of.x->shape, of.y->shape, w);
    images_ = of.x->shape[0], channels_ = w[0], times_ = w[0] / of.x->shape[1];
    for (size_t i = 0; i < 2; ++i) {
      for (int64_t position = 0; position < ResultOf(axes_[i]); ++position) taps_[i].push_back(TapsAt(axes_[i], transposed_, position));
    }
    runs_ = RunsOf(axes_[2], transposed_);
    if (InPlace(call)) return;
    const std::vector<int64_t> none = {0}, filters = AxisOffsets(*of.w, 0), columns = AxisOffsets(*of.w, w.rank() - 1),
                               rows = w.rank() > 3 ? AxisOffsets(*of.w, w.rank() - 2) : none,
                               depths = w.rank() > 4 ? AxisOffsets(*of.w, 2) : none;
    for (const int64_t depth : depths) {
      for (const int64_t row : rows) {
        for (const int64_t column : columns) {
          for (const int64_t filter : filters) source_.push_back(depth + row + column + filter);
        }
      }
    }
  }

  static int64_t Scratch(const KernelCall& call) {
    const int64_t repeated = Transposed(call) ? Threads(call) * RowOf(call) : ImageOf(call);
    return (WeightsOf(call) + (Times(call) > 1 ? repeated : 0)) * static_cast<int64_t>(sizeof(float));
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *from = static_cast<const float*>(inputs[0]), *w = static_cast<const float*>(inputs[1]);
    const auto* bias = has_bias_ ? static_cast<const float*>(inputs[2]) : nullptr;
    auto *const to = static_cast<float*>(outputs[0]), *const repeated =
                                                          static_cast<float*>(scratch) + AlignUp(static_cast<int64_t>(source_.size()), 16);
    if (!source_.empty()) {
      auto* const packed = static_cast<float*>(scratch);
      for (size_t i = 0; i < source_.size(); ++i) packed[i] = w[source_[i]];
      w = packed;
    }
    const int64_t rows = ResultOf(axes_[0]) * ResultOf(axes_[1]), row = ResultOf(axes_[2]) * channels_;
    const int64_t points = OperandOf(axes_[0]) * OperandOf(axes_[1]) * OperandOf(axes_[2]), image = points * channels_;
    if (times_ > 1 && !transposed_) {
      for (int64_t i = 0; i < images_; ++i, from += image / times_) {
        ParallelRanges(image / times_, 16, threads_,
                       [&](int64_t begin, int64_t end) { RepeatElements(from + begin, end - begin, times_, repeated + begin * times_); });
        ParallelRanges(rows, 1, threads_, [&](int64_t begin, int64_t end) {
          std::vector<DepthwiseTap> taps;
          for (int64_t j = begin; j < end; ++j) ComputeRow(repeated, j, w, bias, taps, to + (i * rows + j) * row);
        });
      }
      return;
    }
    ParallelRanges(images_ * rows, 1, threads_, [&](int64_t begin, int64_t end) {
      std::vector<DepthwiseTap> taps;
      float* const sums = repeated + ThreadIndex() * AlignUp(row, 16);
      for (int64_t i = begin; i < end; ++i) {
        const float* const operand = from + i / rows * image;
        if (times_ == 1) {
          ComputeRow(operand, i % rows, w, bias, taps, to + i * row);
        } else {
          ComputeRow(operand, i % rows, w, nullptr, taps, sums);
          SumRow(sums, bias, to + i * row / times_);
        }
      }
    });
  }

 private:
  static int Threads(const KernelCall& call) {
    const ConvolutionOperands of = ConvolutionOperandsOf(call);
    return ThreadsFor(of.y->shape.elements() * (of.w->shape.elements() / of.w->shape[0]), kProductsPerThread, call.threads);
  }
  static int64_t Times(const KernelCall& call) {
    const ConvolutionOperands of = ConvolutionOperandsOf(call);
    return of.w->shape[0] / of.x->shape[1];
  }
  // Floats of scratch memory: packed weights, a repeated image of x, and a row of x of a thread before its channels are summed.
  static int64_t WeightsOf(const KernelCall& call) {
    return InPlace(call) ? 0 : AlignUp(ConvolutionOperandsOf(call).w->shape.elements(), 16);
  }
  static int64_t ImageOf(const KernelCall& call) {
    const Shape& x = ConvolutionOperandsOf(call).x->shape;
    return x.elements() / x[0] * Times(call);
  }
  static int64_t RowOf(const KernelCall& call) {
    const ConvolutionOperands of = ConvolutionOperandsOf(call);
    return AlignUp(of.x->shape[of.x->shape.rank() - 1] * of.w->shape[0], 16);
  }
  static bool InPlace(const KernelCall& call) {
    const OperandType& w = *ConvolutionOperandsOf(call).w;
    return SameMemoryOrder(w.layout, TapsOutermost(w.shape.rank()), w.shape);
  }
  int64_t ResultOf(const WindowAxis& axis) const { return transposed_ ? axis.in : axis.out; }
  int64_t OperandOf(const WindowAxis& axis) const { return transposed_ ? axis.out : axis.in; }

  // A row of x from the sums of each of its channels' filters.
  void SumRow(const float* sums, const float* bias, float* to) const {
    const int64_t points = ResultOf(axes_[2]), channels = channels_ / times_;
    SumRepeated(sums, points * channels, times_, to);
    for (int64_t p = 0; p < points && bias != nullptr; ++p, to += channels) {
      for (int64_t c = 0; c < channels; ++c) to[c] += bias[c];
    }
  }

  // Row `row` of an image's result, from the image `from`.
  void ComputeRow(const float* from, int64_t row, const float* w, const float* bias, std::vector<DepthwiseTap>& taps, float* to) const {
    const std::vector<Tap>&depths = taps_[0][static_cast<size_t>(row / ResultOf(axes_[1]))],
          &heights = taps_[1][static_cast<size_t>(row % ResultOf(axes_[1]))];
    const int64_t step = axes_[2].stride;
    for (const PointRun& run : runs_) {
      taps.clear();
      for (const Tap& depth : depths) {
        for (const Tap& height : heights) {
          const int64_t from_row = depth.from * OperandOf(axes_[1]) + height.from, tap_row = depth.tap * axes_[1].taps + height.tap;
          for (const Tap& column : run.taps) {
            taps.push_back(
                {.x = (from_row * OperandOf(axes_[2]) + column.from) * channels_, .w = (tap_row * axes_[2].taps + column.tap) * channels_});
          }
        }
      }
      loops_.convolve_depthwise({.x = from,
                                 .x_step = (transposed_ ? 1 : step) * channels_,
                                 .w = w,
                                 .taps = taps.data(),
                                 .count = static_cast<Index>(taps.size()),
                                 .bias = bias,
                                 .y = to + run.first * channels_,
                                 .y_step = (transposed_ ? step : 1) * channels_,
                                 .points = run.points,
                                 .channels = channels_});
    }
  }

  const Loops& loops_;
  const bool transposed_, has_bias_;
  const int threads_;
  std::array<WindowAxis, 3> axes_;
  int64_t images_, channels_, times_;                  // channels of y, and how many of them read a channel of x
  std::array<std::vector<std::vector<Tap>>, 2> taps_;  // by position of the result along depth and height
  std::vector<PointRun> runs_;                         // of a row
  std::vector<int64_t> source_;                        // where the weights are packed: the element of w
};

// "" if the call would be served with x and y in channels-last order, whatever their present layouts.
std::string RejectsShapes(const KernelCall& call) {
  if (std::string why = RejectsElements(call); !why.empty()) return why;
  const ConvolutionOperands of = ConvolutionOperandsOf(call);
  const Shape &x = of.x->shape, &y = of.y->shape, &w = of.w->shape;
  const int rank = x.rank();
  if (rank < 3 || rank > 5 || y.rank() != rank || w.rank() != rank) return "rank " + std::to_string(rank);
  const int64_t channels = x[1];
  if (call.attributes.Int("group", 1) != channels || channels < 2 || y[1] != w[0] || w[0] % channels != 0 || w[1] != 1) {
    return "other than filters for single channels";
  }
  if (y[0] != x[0]) return "another batch";
  if (HasConvolutionBias(call) && !call.inputs[2].layout.plain()) return "bias";
  return IsVectorizedChannelsLast(call) ? "the library has a vectorized implementation" : "";
}

std::string Rejects(const KernelCall& call) {
  const ConvolutionOperands of = ConvolutionOperandsOf(call);
  for (const OperandType* operand : {of.x, of.y}) {
    if (operand->shape.rank() < 3) return "rank " + std::to_string(operand->shape.rank());
    if (!SameMemoryOrder(operand->layout, ChannelsLast(operand->shape.rank()), operand->shape))
      return "layout " + operand->layout.ToString();
  }
  return RejectsShapes(call);
}

constexpr CpuKernel Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.row = {.name = name, .op = op, .domain = domain, .rejects = Rejects, .scratch_bytes = DepthwiseConvolution::Scratch},
          .make = MakeKernel<DepthwiseConvolution>};
}

constexpr CpuKernel kKernels[] = {
    Row("cpu.DepthwiseConv", "Conv", ""),
    Row("cpu.DepthwiseConvTranspose", "ConvTranspose", ""),
    Row("cpu.DepthwiseConvGradInput", "ConvGradInput", "gradloom"),
};

}  // namespace

bool PrefersDepthwiseConvolution(KernelCall& call) {
  if (call.op == "ConvGradWeight" || !RejectsShapes(call).empty()) return false;
  SetConvolutionLayouts(call, TapsOutermost(call.outputs[0].shape.rank()));
  return true;
}

std::span<const CpuKernel> CpuDepthwiseConvKernels() { return kKernels; }

}  // namespace gradloom
