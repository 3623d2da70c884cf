#include "kernels/cpu/convolution/small_groups.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernels/cpu/convolution/weight_gradients.h"
#include "kernels/cpu/convolution/window_axis.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kPoints = 256;  // of dy whose products are summed before their sum is added to others
constexpr int64_t kProductsPerThread = 1 << 17;

int64_t Lanes() { return BestLoops().matrix_panel / 2; }

// dw[G C, C, KH, KW] from x[N, H, W, G C] and dy[N, OH, OW, G C]; a missing height is 1. A task computes a row of the windows for a vector
// of channels. Its sums are in the order of images and rows, whatever the number of threads.
class SmallGroups : public Kernel {
 public:
  explicit SmallGroups(const KernelCall& call) : loops_(BestLoops()), threads_(Threads(call)) {
    const OperandType& w = call.outputs[0];
    const Shape &x = call.inputs[0].shape, &y = call.inputs[1].shape;
    const auto [height, width] = WindowAxesOf(call.attributes, x, y, w.shape);
    channels_ = x[1], of_group_ = w.shape[1];
    x_step_ = width.stride * channels_;
    at_once_ = std::max<int64_t>(kPoints / width.out, 1);
    for (int64_t kw = 0; kw < width.taps; ++kw) {
      const WindowAxis::Range under = width.OutputRange(kw);
      taps_.push_back({.x = (kw * width.dilation - width.pad) * channels_, .begin = under.begin, .end = under.end});
    }
    for (int64_t kh = 0; kh < height.taps; ++kh) {
      const WindowAxis::Range under = height.OutputRange(kh);
      std::vector<GroupedGradRow>& rows = rows_.emplace_back();
      for (int64_t image = 0; image < x[0]; ++image) {
        for (int64_t o = under.begin; o < under.end; ++o) {
          const int64_t h = under.first + (o - under.begin) * height.stride;
          rows.push_back({.x = (image * height.in + h) * width.in * channels_, .y = (image * height.out + o) * width.out * channels_});
        }
      }
    }
    output_offsets_ = AxisOffsets(w, 0), input_offsets_ = AxisOffsets(w, 1), column_offsets_ = AxisOffsets(w, w.shape.rank() - 1);
    row_offsets_ = w.shape.rank() == 4 ? AxisOffsets(w, 2) : std::vector<int64_t>{0};
    weights_ = w.layout.elements(w.shape);
    padded_ = weights_ != w.shape.elements();
  }

  static int64_t Scratch(const KernelCall& call) {
    return Threads(call) * Sums(call.outputs[0].shape) * static_cast<int64_t>(sizeof(float));
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *x = static_cast<const float*>(inputs[0]), *dy = static_cast<const float*>(inputs[1]);
    auto* const dw = static_cast<float*>(outputs[0]);
    if (padded_) std::fill_n(dw, weights_, 0.0f);
    const int64_t vectors = CeilDiv(channels_, Lanes()), size = Ssize(taps_) * of_group_ * Lanes();
    ParallelFor(Ssize(rows_) * vectors, threads_, [&](int64_t task) {
      // The last vector may begin within the one before it.
      const int64_t channel = task % vectors * Lanes(), first = std::min(channel, channels_ - Lanes());
      float* const sums = static_cast<float*>(scratch) + ThreadIndex() * size;
      SumRows(x + first, dy + first, rows_[static_cast<size_t>(task / vectors)], sums);
      Write(sums, first, channel - first, dw + row_offsets_[static_cast<size_t>(task / vectors)]);
    });
  }

 private:
  template <typename T>
  static int64_t Ssize(const std::vector<T>& list) {
    return static_cast<int64_t>(list.size());
  }
  static int Threads(const KernelCall& call) { return ThreadsFor(ProductsOfWeightGradient(call), kProductsPerThread, call.threads); }
  static int64_t Sums(const Shape& w) { return w[w.rank() - 1] * w[1] * Lanes(); }

  void SumRows(const float* x, const float* dy, const std::vector<GroupedGradRow>& rows, float* sums) const {
    std::fill_n(sums, Ssize(taps_) * of_group_ * Lanes(), 0.0f);
    for (int64_t row = 0; row < Ssize(rows); row += at_once_) {
      loops_.grouped_gradient({.x = x,
                               .x_step = x_step_,
                               .y = dy,
                               .y_step = channels_,
                               .channels = of_group_,
                               .taps = taps_.data(),
                               .count = Ssize(taps_),
                               .rows = rows.data() + row,
                               .row_count = std::min(at_once_, Ssize(rows) - row),
                               .to = sums});
    }
  }

  // Writes the sums of the lanes from `lane` on for a row of the windows, whose weights begin at `dw`.
  void Write(const float* sums, int64_t first, int64_t lane, float* dw) const {
    for (const int64_t column : column_offsets_) {
      for (const int64_t input : input_offsets_) {
        for (int64_t i = lane; i < Lanes(); ++i) dw[column + input + output_offsets_[static_cast<size_t>(first + i)]] = sums[i];
        sums += Lanes();
      }
    }
  }

  const Loops& loops_;
  const int threads_;
  int64_t channels_, of_group_, x_step_, at_once_;
  std::vector<DepthwiseGradTap> taps_;             // of a row of the windows
  std::vector<std::vector<GroupedGradRow>> rows_;  // of x and dy, by row of the windows
  std::vector<int64_t> output_offsets_, input_offsets_, row_offsets_, column_offsets_;
  int64_t weights_;  // elements of dw, including padding
  bool padded_;
};

}  // namespace

bool ServesSmallGroups(const KernelCall& call) {
  if (call.op != "ConvGradWeight" || BestLoops().name == std::string_view("baseline")) return false;
  const Shape &x = call.inputs[0].shape, &w = call.outputs[0].shape;
  return w[0] == x[1] && (w[1] == 4 || w[1] == 8) && x[1] >= Lanes();
}

std::unique_ptr<Kernel> MakeSmallGroups(const KernelCall& call) { return std::make_unique<SmallGroups>(call); }

int64_t SmallGroupsScratch(const KernelCall& call) { return SmallGroups::Scratch(call); }

}  // namespace gradloom
