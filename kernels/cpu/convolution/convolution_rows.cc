// The gradient of the input of convolutions with few input channels, channels-last. A row of a window is KW * I contiguous elements of the
// input, which fill a vector where the channels alone would not. For each row of the window, a row of dy is multiplied by the weights, and
// the products are added at the positions of their windows.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/convolution/window_axis.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"
#include "runtime/base/windows.h"

namespace gradloom {
namespace {

constexpr int64_t kPanel = 32;  // columns of a product that a tile of the widest vectors covers

// dy[N, OH, OW, O], w[O, I, KH, KW], dx[N, H, W, I]; a missing height is 1.
struct Sizes {
  int64_t images, outputs, inputs, width, height, out_width, out_height, kernel_width, kernel_height = 1;
  int64_t stride_w, stride_h = 1, pad_w, pad_h = 0, dilation_h = 1;

  explicit Sizes(const KernelCall& call) {
    const Shape &y = call.inputs[0].shape, &w = call.inputs[1].shape, &x = call.outputs[0].shape;
    const Windows windows = WindowsOf(call.attributes, x, {w.begin() + 2, w.end()});
    const int rank = x.rank();
    images = x[0], inputs = x[1], outputs = y[1];
    width = x[rank - 1], out_width = y[rank - 1];
    height = rank == 4 ? x[2] : 1, out_height = rank == 4 ? y[2] : 1;
    kernel_width = windows.kernel.back(), stride_w = windows.strides.back(), pad_w = windows.pads_begin.back();
    if (rank == 4) kernel_height = windows.kernel[0], stride_h = windows.strides[0], pad_h = windows.pads_begin[0];
    if (rank == 4) dilation_h = windows.dilations[0];
  }

  int64_t window() const { return kernel_width * inputs; }             // elements in a row of the window
  int64_t padded_window() const { return AlignUp(window(), kPanel); }  // padded for the product
  int64_t panels() const { return outputs * padded_window(); }         // floats of the weights for a row of the window
  int64_t row() const { return std::max((out_width - 1) * stride_w + kernel_width, pad_w + width) * inputs; }

  // Floats of scratch memory: the weights; then per thread, the rows of a product, and a padded row of dx.
  int64_t weights() const { return kernel_height * panels(); }
  int64_t products() const { return out_width * padded_window(); }
  int64_t thread() const { return products() + AlignUp(row(), 16); }
};

class ConvGradInputRows : public Kernel {
 public:
  explicit ConvGradInputRows(const KernelCall& call)
      : n_(call), threads_(ThreadsFor(n_.images * n_.height, kRowsPerThread, call.threads)), loops_(BestLoops()) {
    const OperandType& w = call.inputs[1];
    const int64_t panel = loops_.matrix_panel;
    const int rank = w.shape.rank();
    const std::vector<int64_t> outputs = AxisOffsets(w, 0), inputs = AxisOffsets(w, 1),
                               rows = rank == 4 ? AxisOffsets(w, 2) : std::vector<int64_t>{0}, columns = AxisOffsets(w, rank - 1);
    source_.assign(static_cast<size_t>(n_.weights()), -1);
    for (int64_t h = 0; h < n_.kernel_height; ++h) {
      for (int64_t column = 0; column < n_.window(); ++column) {
        const int64_t place = rows[static_cast<size_t>(h)] + inputs[static_cast<size_t>(column % n_.inputs)] +
                              columns[static_cast<size_t>(column / n_.inputs)];
        int32_t* const to = source_.data() + h * n_.panels() + column / panel * n_.outputs * panel + column % panel;
        for (int64_t o = 0; o < n_.outputs; ++o) to[o * panel] = static_cast<int32_t>(outputs[static_cast<size_t>(o)] + place);
      }
    }
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *dy = static_cast<const float*>(inputs[0]), *w = static_cast<const float*>(inputs[1]);
    auto *dx = static_cast<float*>(outputs[0]), *weights = static_cast<float*>(scratch);
    for (size_t i = 0; i < source_.size(); ++i) weights[i] = source_[i] < 0 ? 0.0f : w[source_[i]];
    ParallelRanges(n_.images * n_.height, 1, threads_, [&](int64_t begin, int64_t end) {
      float* products = weights + n_.weights() + ThreadIndex() * n_.thread();
      float* row = products + n_.products();
      for (int64_t i = begin; i < end; ++i) {
        const float* image = dy + i / n_.height * n_.out_height * n_.out_width * n_.outputs;
        float* to = dx + i * n_.width * n_.inputs;
        if (!Multiply(image, i % n_.height, weights, products)) {
          std::fill_n(to, n_.width * n_.inputs, 0.0f);
          continue;
        }
        std::fill_n(row, n_.row(), 0.0f);
        const int64_t window = n_.window(), wide = n_.padded_window(), step = n_.stride_w * n_.inputs;
        for (int64_t o = 0; o < n_.out_width; ++o) {
          for (int64_t j = 0; j < window; ++j) row[o * step + j] += products[o * wide + j];
        }
        std::copy_n(row + n_.pad_w * n_.inputs, n_.width * n_.inputs, to);
      }
    });
  }

 private:
  static constexpr int64_t kRowsPerThread = 16;

  // products[OW, padded window] = the sum of the contributions of all rows of dy whose windows cover row h of the input. Returns false if
  // there are none.
  bool Multiply(const float* dy, int64_t h, const float* weights, float* products) const {
    MatrixArgs args = {.m = n_.out_width,
                       .n = n_.padded_window(),
                       .k = n_.outputs,
                       .a = nullptr,
                       .b = nullptr,
                       .a_row = n_.outputs,
                       .a_col = 1,
                       .b_row = 0,
                       .b_col = 0,
                       .bias = nullptr,
                       .bias_step = 0,
                       .c = products,
                       .c_row = n_.padded_window(),
                       .alpha = 1,
                       .beta = 0,
                       .adds = false};
    for (int64_t k = 0; k < n_.kernel_height; ++k) {
      const int64_t above = h + n_.pad_h - k * n_.dilation_h;
      if (above < 0 || above % n_.stride_h != 0 || above / n_.stride_h >= n_.out_height) continue;
      args.a = dy + above / n_.stride_h * n_.out_width * n_.outputs;
      loops_.multiply_packed(args, weights + k * n_.panels());
      args.adds = true;
    }
    return args.adds;
  }

  const Sizes n_;
  const int threads_;
  const Loops& loops_;
  std::vector<int32_t> source_;  // by position in the packed weights: the element of w, or -1
};

std::string Rejects(const KernelCall& call) {
  if (std::string why = RejectsElements(call); !why.empty()) return why;
  const OperandType &y = call.inputs[0], &w = call.inputs[1], &x = call.outputs[0];
  const int rank = x.shape.rank();
  if (rank < 3 || rank > 4 || y.shape.rank() != rank || w.shape.rank() != rank) return "rank " + std::to_string(rank);
  if (y.shape[0] != x.shape[0] || w.shape[0] != y.shape[1] || w.shape[1] != x.shape[1]) return "another batch, other channels or groups";
  for (const OperandType* operand : {&y, &x}) {
    if (!SameMemoryOrder(operand->layout, ChannelsLast(rank), operand->shape)) return "layout " + operand->layout.ToString();
  }
  if (const auto dilations = call.attributes.Ints("dilations"); !dilations.empty() && dilations.back() != 1) return "dilations";
  const Sizes n(call);
  // The library processes each element of a window at the cost of 16 channels, and several times slower with strides. Adding the rows of
  // the windows takes at least half of the time that a product of few channels saves. Measured with 1 to 64 channels on either side.
  const int64_t library = n.kernel_width * AlignUp(n.inputs, 16);
  if (library < n.padded_window() * (n.stride_h * n.stride_w > 1 ? 1 : 2)) return "many channels";
  // In a product with few rows, the multiply-adds wait for each other.
  if (n.out_width < 4) return "narrow";
  if (w.layout.elements(w.shape) > INT32_MAX || n.row() > (1 << 22) || n.products() > (1 << 22)) return "extents";
  return "";
}

int64_t Scratch(const KernelCall& call) {
  const Sizes n(call);
  return (n.weights() + std::max(call.threads, 1) * n.thread()) * static_cast<int64_t>(sizeof(float));
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.ConvGradInput", .op = "ConvGradInput", .domain = "gradloom", .rejects = Rejects, .scratch_bytes = Scratch},
     .make = MakeKernel<ConvGradInputRows>},
};

}  // namespace

std::span<const CpuKernel> CpuConvolutionRowKernels() { return kKernels; }

}  // namespace gradloom
