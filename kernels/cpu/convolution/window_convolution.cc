// Channels-last, a row of a window is KW * I contiguous elements of x, so for each row of the windows a row of y is one product with the
// weights: the windows are the rows of a matrix, which overlap in memory. Where the channels of y do not fill vectors, those of adjacent
// points do: a row of the matrix is then the elements under the windows of all of them.
#include "kernels/cpu/convolution/window_convolution.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/convolution/convolution_desc.h"
#include "kernels/cpu/convolution/window_axis.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kPoints = 256;  // of y at most, per chunk of rows
constexpr int64_t kChunksPerThread = 2;
constexpr int64_t kFewElements = 12;
constexpr int64_t kMinRows = 4;  // of a product: in fewer, the multiply-adds would wait for each other

// y[N, OD, OH, OW, O] from x[N, D, H, W, I] and w[O, I, KD, KH, KW]; a missing depth or height is 1.
struct Sizes {
  int64_t images, inputs, outputs;
  WindowAxis depth, height, width;
  int64_t rows;  // of y in a chunk, at most
  int64_t panel = BestLoops().matrix_panel;
  int64_t points = 1;  // of y that a row of the product computes

  explicit Sizes(const KernelCall& call) {
    const Shape &x = call.inputs[0].shape, &w = call.inputs[1].shape, &y = call.outputs[0].shape;
    images = x[0], inputs = x[1], outputs = y[1];
    const std::array<WindowAxis, 3> axes = VolumeAxesOf(call.attributes, x, y, w);
    depth = axes[0], height = axes[1], width = axes[2];
    const int64_t together = std::clamp<int64_t>(kPoints / width.out, 1, height.out);
    rows = CeilDiv(height.out, CeilDiv(height.out, together));
    for (int64_t more = 2; more * outputs <= panel && kMinRows * more <= width.out; ++more) {
      if (products(more) * points < products(points) * more) points = more;
    }
  }

  // Multiply-adds of a row of the product, including those by zeros, for `of` points.
  int64_t products(int64_t of) const { return AlignUp(of * outputs, panel / 2) * elements(of); }
  // Elements of a row of x under the windows of `of` adjacent points.
  int64_t elements(int64_t of) const { return (width.taps + (of - 1) * width.stride) * inputs; }

  int64_t taps() const { return depth.taps * height.taps; }
  int64_t row_chunks() const { return CeilDiv(height.out, rows); }
  int64_t chunks() const { return images * depth.out * row_chunks(); }
  int64_t window() const { return elements(1); }
  int64_t columns() const { return points * outputs; }  // of the product
  int64_t depth_of_sums() const { return elements(points); }
  int64_t x_rows(int64_t of) const { return (of - 1) * height.stride + (height.taps - 1) * height.dilation + 1; }
  // The row that the windows of a row of y cover, and those of points after its end in the last row of the product, with padding.
  int64_t x_row() const { return AlignUp(elements(aligned_width()), 16); }
  int64_t aligned_width() const { return CeilDiv(width.out, points) * points; }

  // Floats of scratch memory: the weights; then per thread, rows of x with padding.
  int64_t tap() const { return depth_of_sums() * AlignUp(columns(), panel); }
  int64_t weights() const { return taps() * tap(); }
  int64_t padded() const { return x_rows(rows) * x_row(); }
};

class WindowConvolution : public Kernel {
 public:
  explicit WindowConvolution(const KernelCall& call)
      : n_(call),
        has_bias_(HasConvolutionBias(call)),
        threads_(ThreadsFor(n_.chunks(), kChunksPerThread, call.threads)),
        loops_(BestLoops()) {
    const OperandType& w = call.inputs[1];
    const int rank = w.shape.rank();
    const std::vector<int64_t> none = {0}, outputs = AxisOffsets(w, 0), inputs = AxisOffsets(w, 1), columns = AxisOffsets(w, rank - 1),
                               depths = rank == 5 ? AxisOffsets(w, 2) : none, rows = rank > 3 ? AxisOffsets(w, rank - 2) : none;
    sources_.assign(static_cast<size_t>(n_.weights()), -1);
    int32_t* matrix = sources_.data();
    for (int64_t depth : depths) {
      for (int64_t row : rows) {
        for (int64_t k = 0; k < n_.window(); ++k) {
          const int64_t place = depth + row + columns[static_cast<size_t>(k / n_.inputs)] + inputs[static_cast<size_t>(k % n_.inputs)];
          for (int64_t column = 0; column < n_.columns(); ++column) {
            const int64_t at = k + column / n_.outputs * n_.width.stride * n_.inputs;
            matrix[(column / n_.panel * n_.depth_of_sums() + at) * n_.panel + column % n_.panel] =
                static_cast<int32_t>(place + outputs[static_cast<size_t>(column % n_.outputs)]);
          }
        }
        matrix += n_.tap();
      }
    }
  }

  static int64_t Scratch(const KernelCall& call) {
    const Sizes n(call);
    return (n.weights() + std::max(call.threads, 1) * n.padded()) * static_cast<int64_t>(sizeof(float));
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *x = static_cast<const float*>(inputs[0]), *w = static_cast<const float*>(inputs[1]);
    const auto* bias = has_bias_ ? static_cast<const float*>(inputs[2]) : nullptr;
    auto *const y = static_cast<float*>(outputs[0]), *const weights = static_cast<float*>(scratch);
    for (size_t i = 0; i < sources_.size(); ++i) weights[i] = sources_[i] < 0 ? 0.0f : w[sources_[i]];
    ParallelRanges(n_.chunks(), 1, threads_, [&](int64_t begin, int64_t end) {
      float* const padded = weights + n_.weights() + ThreadIndex() * n_.padded();
      for (int64_t i = begin; i < end; ++i) RunChunk(i, x, weights, bias, padded, y);
    });
  }

 private:
  void RunChunk(int64_t index, const float* x, const float* weights, const float* bias, float* padded, float* y) const {
    const int64_t down = n_.row_chunks(), plane = index / down, first = index % down * n_.rows;
    const int64_t rows = std::min(n_.rows, n_.height.out - first), y_row = n_.width.out * n_.outputs;
    float* const to = y + (plane * n_.height.out + first) * y_row;
    const int64_t whole = n_.width.out / n_.points, left = n_.width.out % n_.points;  // rows of the product, and points of the last one
    MatrixArgs args = {.m = whole,
                       .n = n_.columns(),
                       .k = n_.depth_of_sums(),
                       .a = nullptr,
                       .b = nullptr,
                       .a_row = n_.points * n_.width.stride * n_.inputs,
                       .a_col = 1,
                       .b_row = 0,
                       .b_col = 0,
                       .bias = nullptr,
                       .bias_step = 1,
                       .c = nullptr,
                       .c_row = n_.columns(),
                       .alpha = 1,
                       .beta = 0,
                       .adds = true};
    Fill(bias, rows * n_.width.out, to);
    for (int64_t kd = 0; kd < n_.depth.taps; ++kd) {
      const int64_t d = plane % n_.depth.out * n_.depth.stride - n_.depth.pad + kd * n_.depth.dilation;
      if (d < 0 || d >= n_.depth.in) continue;
      CopyRows(first, rows, x + (plane / n_.depth.out * n_.depth.in + d) * n_.height.in * n_.width.in * n_.inputs, padded);
      for (int64_t row = 0; row < rows; ++row) {
        args.c = to + row * y_row;
        for (int64_t kh = 0; kh < n_.height.taps; ++kh) {
          const int64_t at = row * n_.height.stride + kh * n_.height.dilation, h = first * n_.height.stride - n_.height.pad + at;
          if (h < 0 || h >= n_.height.in) continue;
          args.a = padded + at * n_.x_row();
          const float* const of_tap = weights + (kd * n_.height.taps + kh) * n_.tap();
          loops_.multiply_packed(args, of_tap);
          if (left == 0) continue;
          MatrixArgs last = args;
          last.m = 1, last.n = left * n_.outputs;
          last.a += whole * args.a_row, last.c += whole * args.c_row;
          loops_.multiply_packed(last, of_tap);
        }
      }
    }
  }

  void Fill(const float* bias, int64_t points, float* y) const {
    if (bias == nullptr) {
      std::fill_n(y, points * n_.outputs, 0.0f);
      return;
    }
    for (int64_t i = 0; i < points; ++i) std::copy_n(bias, n_.outputs, y + i * n_.outputs);
  }

  // The rows of `x`, an image, under the windows of rows of y, with zeros for padding.
  void CopyRows(int64_t first, int64_t rows, const float* x, float* padded) const {
    const int64_t before = n_.width.pad * n_.inputs, copied = std::clamp<int64_t>(n_.x_row() - before, 0, n_.width.in * n_.inputs);
    for (int64_t row = 0; row < n_.x_rows(rows); ++row) {
      const int64_t h = first * n_.height.stride - n_.height.pad + row;
      if (h < 0 || h >= n_.height.in) continue;
      float* const to = padded + row * n_.x_row();
      std::fill_n(to, std::min(before, n_.x_row()), 0.0f);
      if (copied > 0) std::copy_n(x + h * n_.width.in * n_.inputs, copied, to + before);
      std::fill(to + std::min(before + copied, n_.x_row()), to + n_.x_row(), 0.0f);
    }
  }

  const Sizes n_;
  const bool has_bias_;
  const int threads_;
  const Loops& loops_;
  std::vector<int32_t> sources_;  // by position in the packed weights: the element of w, or -1
};

std::string RejectsShapes(const KernelCall& call) {
  if (BestLoops().name == std::string_view("baseline")) return "a machine without AVX2";
  if (std::string why = RejectsElements(call); !why.empty()) return why;
  const Shape &x = call.inputs[0].shape, &w = call.inputs[1].shape, &y = call.outputs[0].shape;
  const int rank = x.rank();
  if (rank < 3 || rank > 5 || y.rank() != rank || w.rank() != rank) return "rank " + std::to_string(rank);
  if (y[0] != x[0] || w[0] != y[1] || w[1] != x[1]) return "another batch, other channels or groups";
  const Sizes n(call);
  if (n.width.dilation != 1 && n.width.taps > 1) return "dilations";
  if (n.window() < kFewElements) return "few elements in a row of a window";
  if (!IsSlowChannelsLast(call)) return "the library has an optimized implementation";
  // With AVX-512, the library's products of copied windows are faster than half-empty vectors.
  const bool half_empty = 3 * n.products(n.points) > 4 * n.columns() * n.window();
  if (BestLoops().name == std::string_view("avx512") && half_empty) return "few channels";
  if (call.inputs[1].layout.elements(w) > INT32_MAX) return "extents";
  return "";
}

std::string Rejects(const KernelCall& call) {
  if (std::string why = RejectsShapes(call); !why.empty()) return why;
  for (const OperandType* operand : {&call.inputs[0], &call.outputs[0]}) {
    if (!SameMemoryOrder(operand->layout, ChannelsLast(operand->shape.rank()), operand->shape))
      return "layout " + operand->layout.ToString();
  }
  if (HasConvolutionBias(call) && !call.inputs[2].layout.plain()) return "layout " + call.inputs[2].layout.ToString();
  return "";
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.WindowConv", .op = "Conv", .domain = "", .rejects = Rejects, .scratch_bytes = WindowConvolution::Scratch},
     .make = MakeKernel<WindowConvolution>},
};

}  // namespace

bool PrefersWindowConvolution(KernelCall& call) {
  if (call.op != "Conv" || !RejectsShapes(call).empty()) return false;
  SetConvolutionLayouts(call, std::nullopt);
  return true;
}

std::span<const CpuKernel> CpuWindowConvolutionKernels() { return kKernels; }

}  // namespace gradloom
