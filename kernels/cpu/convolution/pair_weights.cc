#include "kernels/cpu/convolution/pair_weights.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/convolution/window_axis.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kDepthElements = int64_t{1} << 18;  // of dy per block of points: half a mebibyte, so that it stays in the L2 cache
constexpr int64_t kMinDepth = 256, kMaxDepth = 1024;  // points per block
constexpr int64_t kMinBlock = 64;                     // outputs per task
constexpr int64_t kMaxWidth = 16;                     // of dy; oneDNN is as fast for 64 channels at 32 points, and half as fast at 8
constexpr int64_t kMaxPoints = 1 << 16;               // whose positions in x are stored per tap

// dw[O, KH, KW, I] from x[N, H, W, I] and dy[N, OH, OW, O]; a missing height is 1. For each tap, dw is the product of the transpose of dy
// and the rows of x under that tap: a sum over the points of dy.
struct Sizes {
  int64_t images, inputs, outputs, points;  // points of dy in all images
  WindowAxis height, width;

  Sizes(const KernelCall& call, const std::pair<WindowAxis, WindowAxis>& axes)
      : images(call.inputs[0].shape[0]),
        inputs(call.inputs[0].shape[1]),
        outputs(call.inputs[1].shape[1]),
        points(images * axes.first.out * axes.second.out),
        height(axes.first),
        width(axes.second) {}
  explicit Sizes(const KernelCall& call)
      : Sizes(call, WindowAxesOf(call.attributes, call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape)) {}

  int64_t taps() const { return height.taps * width.taps; }
  int64_t panels() const { return CeilDiv(inputs, kPairColumns); }
  int64_t rows() const { return AlignUp(outputs, 16); }  // of the transpose of dy
  int64_t depth() const {
    const int64_t most = std::clamp(AlignUp(kDepthElements / rows(), kPairColumns), kMinDepth, kMaxDepth);
    return std::min(most, AlignUp(points, kPairColumns));
  }
  int64_t blocks() const { return CeilDiv(points, depth()); }

  // Scratch memory in 32-bit words: the transpose of dy in blocks [rows, depth]. Then per thread: the pairs of a panel of x, which share
  // their memory with those of dy, and the sums of a task.
  int64_t transposed() const { return blocks() * rows() * depth() / 2; }
  int64_t packed() const { return depth() / 2 * kPairColumns; }
  int64_t sums() const { return taps() * rows() * kPairColumns; }
  int64_t thread() const { return packed() + sums(); }
};

class ConvGradWeight : public Kernel {
 public:
  explicit ConvGradWeight(const KernelCall& call)
      : n_(call), dtype_(call.outputs[0].dtype), threads_(call.threads), loops_(BestLoops()), product_(BestPairProduct()) {
    for (int64_t tap = 0; tap < n_.taps(); ++tap) {
      const WindowAxis::Range down = n_.height.OutputRange(tap / n_.width.taps), along = n_.width.OutputRange(tap % n_.width.taps);
      const auto within = [](const WindowAxis::Range& range, const WindowAxis& axis, int64_t i) {
        return i < range.begin || i >= range.end ? -1 : range.first + (i - range.begin) * axis.stride;
      };
      for (int64_t image = 0; image < n_.images; ++image) {
        for (int64_t i = 0; i < n_.height.out; ++i) {
          for (int64_t j = 0; j < n_.width.out; ++j) {
            const int64_t y = within(down, n_.height, i), x = within(along, n_.width, j);
            points_.push_back(y < 0 || x < 0 ? -1 : static_cast<int32_t>((image * n_.height.in + y) * n_.width.in + x));
          }
        }
      }
    }
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *x = static_cast<const uint16_t*>(inputs[0]), *dy = static_cast<const uint16_t*>(inputs[1]);
    auto* const memory = static_cast<float*>(scratch);
    auto* const transposed = reinterpret_cast<uint16_t*>(memory);
    const auto of_thread = [&] { return memory + n_.transposed() + ThreadIndex() * n_.thread(); };
    ParallelRanges(n_.blocks(), 1, threads_, [&](int64_t begin, int64_t end) {
      auto* const staged = reinterpret_cast<uint32_t*>(of_thread());
      for (int64_t block = begin; block < end; ++block) TransposeBlock(dy, block, staged, transposed + block * n_.rows() * n_.depth());
    });
    // Each element of dw is one sum in the order of the points, whatever the tasks.
    const int64_t parts = std::clamp<int64_t>(CeilDiv(2 * threads_, n_.panels()), 1, std::max<int64_t>(n_.rows() / kMinBlock, 1));
    const int64_t height = AlignUp(CeilDiv(n_.rows(), parts), 16);
    ParallelRanges(n_.panels() * parts, 1, threads_, [&](int64_t begin, int64_t end) {
      float* const own = of_thread();
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % parts * height;
        if (first >= n_.rows()) continue;
        Task(x, transposed, task / parts * kPairColumns, first, std::min(height, n_.rows() - first), own, outputs[0]);
      }
    });
  }

 private:
  // to[rows, depth] = the transpose of a block's points of dy, padded with zeros.
  void TransposeBlock(const uint16_t* dy, int64_t block, uint32_t* staged, uint16_t* to) const {
    static constexpr uint16_t kZeros[kPairColumns] = {};
    const int64_t pairs = n_.depth() / 2, begin = block * n_.depth();
    for (int64_t column = 0; column < n_.rows(); column += kPairColumns) {
      const int64_t columns = std::min<int64_t>(kPairColumns, n_.outputs - column),
                    rows = std::min<int64_t>(kPairColumns, n_.rows() - column);
      if (columns < kPairColumns) std::fill_n(staged, pairs * kPairColumns, 0u);
      for (int64_t p = 0; p < pairs && columns > 0; ++p) {
        const auto row = [&](int64_t point) { return point < n_.points ? dy + point * n_.outputs + column : kZeros; };
        loops_.pair_rows(row(begin + 2 * p), row(begin + 2 * p + 1), staged + p * kPairColumns, columns);
      }
      loops_.transpose(reinterpret_cast<const float*>(staged), kPairColumns, reinterpret_cast<float*>(to + column * n_.depth()), pairs,
                       rows, pairs);
    }
  }

  // The sums for inputs from `column` on and outputs [first, first + rows).
  void Task(const uint16_t* x, const uint16_t* transposed, int64_t column, int64_t first, int64_t rows, float* memory, void* dw) const {
    auto* const packed = reinterpret_cast<uint32_t*>(memory);
    float* const sums = memory + n_.packed();
    const int64_t columns = std::min<int64_t>(kPairColumns, n_.inputs - column);
    if (columns < kPairColumns) std::fill_n(packed, n_.packed(), 0u);
    for (int64_t block = 0; block < n_.blocks(); ++block) {
      for (int64_t tap = 0; tap < n_.taps(); ++tap) {
        PackPoints(x + column, columns, tap, block * n_.depth(), packed);
        product_({.m = rows,
                  .n = kPairColumns,
                  .k = n_.depth(),
                  .a = transposed + (block * n_.rows() + first) * n_.depth(),
                  .a_row = n_.depth(),
                  .b = packed,
                  .b_panel = 0,
                  .c = sums + tap * rows * kPairColumns,
                  .c_row = kPairColumns,
                  .adds = block > 0});
      }
    }
    for (int64_t o = 0; o < std::min(rows, n_.outputs - first); ++o) {
      for (int64_t tap = 0; tap < n_.taps(); ++tap) {
        StoreFloats(loops_, dtype_, sums + (tap * rows + o) * kPairColumns, columns, dw,
                    ((first + o) * n_.taps() + tap) * n_.inputs + column);
      }
    }
  }

  // The pairs of the rows of x under a tap, for the points from `begin` on.
  void PackPoints(const uint16_t* x, int64_t columns, int64_t tap, int64_t begin, uint32_t* to) const {
    static constexpr uint16_t kZeros[kPairColumns] = {};
    const int32_t* const points = points_.data() + tap * n_.points;
    const auto row = [&](int64_t point) { return point < n_.points && points[point] >= 0 ? x + points[point] * n_.inputs : kZeros; };
    for (int64_t p = begin; p < begin + n_.depth(); p += 2, to += kPairColumns) loops_.pair_rows(row(p), row(p + 1), to, columns);
  }

  const Sizes n_;
  const DType dtype_;
  const int threads_;
  const Loops& loops_;
  const PairProduct product_;
  std::vector<int32_t> points_;  // [taps, points]: the point of x under each tap; -1: in the padding
};

std::string Rejects(const KernelCall& call) {
  const OperandType &x = call.inputs[0], &y = call.inputs[1], &w = call.outputs[0];
  const int rank = x.shape.rank();
  if (x.dtype != DType::kBfloat16 || y.dtype != DType::kBfloat16) return std::string(DTypeName(x.dtype));
  if (w.dtype != DType::kBfloat16 && w.dtype != DType::kFloat32) return std::string(DTypeName(w.dtype));
  if (rank < 3 || rank > 4 || y.shape.rank() != rank || w.shape.rank() != rank) return "rank " + std::to_string(rank);
  for (const OperandType* operand : {&x, &y, &w}) {
    if (operand->shape.elements() == 0) return "nothing to compute";
  }
  if (y.shape[0] != x.shape[0] || w.shape[0] != y.shape[1] || w.shape[1] != x.shape[1]) return "another batch, other channels or groups";
  for (const OperandType* operand : {&x, &y, &w}) {
    if (!SameMemoryOrder(operand->layout, ChannelsLast(rank), operand->shape)) return "layout " + operand->layout.ToString();
  }
  return ServesPairWeights(call) ? "" : "large images, or few channels";
}

int64_t Scratch(const KernelCall& call) {
  const Sizes n(call);
  return (n.transposed() + std::max(call.threads, 1) * n.thread()) * static_cast<int64_t>(sizeof(float));
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.bfloat16.ConvGradWeight",
             .op = "ConvGradWeight",
             .domain = "gradloom",
             .rejects = Rejects,
             .scratch_bytes = Scratch},
     .make = MakeKernel<ConvGradWeight>},
};

bool IsFast() { return HasFastBfloat16(); }

}  // namespace

bool ServesPairWeights(const KernelCall& call) {
  const Shape &x = call.inputs[0].shape, &y = call.inputs[1].shape;
  if (call.inputs[0].dtype != DType::kBfloat16 || x.rank() < 3 || x.rank() > 4 || call.attributes.Int("group", 1) != 1) return false;
  const Sizes n(call);
  if (n.points > kMaxPoints || x.elements() / x[1] > INT32_MAX || n.inputs < kPairColumns || n.outputs < kMinBlock) return false;
  return y[x.rank() - 1] <= kMaxWidth;
}

bool PrefersPairWeights(const KernelCall& call) { return IsFast() && ServesPairWeights(call); }

std::span<const CpuKernel> CpuFastPairWeightKernels() { return IsFast() ? std::span(kKernels) : std::span<const CpuKernel>(); }
std::span<const CpuKernel> CpuSlowPairWeightKernels() { return IsFast() ? std::span<const CpuKernel>() : std::span(kKernels); }

}  // namespace gradloom
