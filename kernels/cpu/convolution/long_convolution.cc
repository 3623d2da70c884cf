#include "kernels/cpu/convolution/long_convolution.h"

#include <algorithm>
#include <utility>

#include "kernels/catalog/convolution.h"
#include "kernels/cpu/convolution/window_axis.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/ring.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kMaxHalf = 1024;           // a ring of 16 lines then has 128 KiB
constexpr int64_t kMaxRingRows = 32;         // rows whose values and sums are computed together
constexpr int64_t kMaxRingBytes = 64 << 20;  // of the values of a group
constexpr double kRingGain = 1.5;            // ratio of vector instructions from which the ring is faster
constexpr int64_t kRingWorkPerThread = 1 << 14;

}  // namespace

LongConvolution::LongConvolution(const KernelCall& call) {
  const ConvolutionOperands of = ConvolutionOperandsOf(call);
  const Shape &x = of.x->shape, &y = of.y->shape, &w = of.w->shape;
  const WindowAxis axis = WindowAxesOf(call.attributes, x, y, w).second;
  input_gradient = call.op == "ConvGradInput";
  images = x[0], groups = call.attributes.Int("group", 1), taps = w[2];
  x_channels = w[1], y_channels = w[0] / groups;
  x_length = x[2], y_length = y[2], before = axis.pad;
  w_x_step = taps, w_y_step = w[1] * taps;
  if (input_gradient) {
    std::swap(x_channels, y_channels), std::swap(x_length, y_length), std::swap(w_x_step, w_y_step);
    before = taps - 1 - before;
  }
  // For each ring size, tries the number of blocks that is needed without padding, and one less, which may suffice with padding.
  block = y_length, blocks = 1, half = HalfOf(y_length);
  for (int64_t of = Ring::HalfFor(1); of <= kMaxHalf; of = Ring::HalfFor(of + 1)) {
    const int64_t outputs_per_block = 2 * of - taps + 1;
    if (outputs_per_block < 1) continue;
    const int64_t needed = CeilDiv(y_length, outputs_per_block);
    for (int64_t count = std::max<int64_t>(needed - 1, 1); count <= needed; ++count) {
      const int64_t size = CeilDiv(y_length, count), number = CeilDiv(y_length, size);
      if (HalfOf(size) > of || (half <= kMaxHalf && RingWork(number, of) >= RingWork())) continue;
      block = size, blocks = number, half = of;
    }
  }
}

int64_t LongConvolution::x_tuples() const { return CeilDiv(x_channels, static_cast<int64_t>(BestLoops().ring_lines)); }
int64_t LongConvolution::y_tuples() const { return CeilDiv(y_channels, static_cast<int64_t>(BestLoops().ring_lines)); }
int64_t LongConvolution::rows_at_once() const { return CeilDiv(rows(), CeilDiv(rows(), kMaxRingRows)); }

LongConvolution::Block LongConvolution::BlockOf(int64_t i, int64_t of) const {
  const int64_t begin = i * of, end = std::min(begin + of, y_length), first = begin - before;
  const int64_t x_begin = std::clamp<int64_t>(first, 0, x_length), x_end = std::clamp(end + taps - 1 - before, x_begin, x_length);
  return {begin, end, x_begin, x_end, x_begin - first};
}

// The half for blocks of `of` points, such that no product wraps onto the place of another. The product of point u of x and tap k is at u -
// k. The last one must be below n; a negative u - k wraps to u - k + n, which must be after the block.
int64_t LongConvolution::HalfOf(int64_t of) const {
  int64_t n = 1;
  for (int64_t i = 0; i * of < y_length; ++i) {
    const Block at = BlockOf(i, of);
    if (at.x_begin == at.x_end) continue;
    n = std::max({n, at.place + at.x_end - at.x_begin, at.end - at.begin + taps - 1 - at.place});
  }
  return Ring::HalfFor(CeilDiv(std::max({n, of, taps}), 2));
}

double LongConvolution::RingWork(int64_t of_blocks, int64_t of_half) const {
  const auto elements = static_cast<double>(of_half);
  const double of_rows = static_cast<double>(images * of_blocks), xs = static_cast<double>(groups * x_channels);
  const auto in = static_cast<double>(groups * x_tuples()), out = static_cast<double>(y_tuples());
  // A pass takes 7 instructions per element, including loads and stores, and so does the conversion in or out.
  const double transform = elements * 7 * static_cast<double>(Ring::Passes(of_half) + 1);
  return of_rows * (in + static_cast<double>(groups) * out) * transform + xs * out * (transform + of_rows * elements * 4.5);
}

double LongConvolution::PlainWork() const {
  return static_cast<double>(images * groups * x_channels * y_tuples()) * static_cast<double>(y_length * taps);
}

std::string RejectsLongConvolution(const KernelCall& call) {
  if (std::string why = RejectsElements(call); !why.empty()) return why;
  const ConvolutionOperands of = ConvolutionOperandsOf(call);
  for (const OperandType* operand : {of.x, of.w, of.y}) {
    if (operand->shape.rank() != 3) return "rank " + std::to_string(operand->shape.rank());
  }
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  const Shape &x = of.x->shape, &y = of.y->shape, &w = of.w->shape;
  const int64_t groups = call.attributes.Int("group", 1);
  if (groups < 1 || y[0] != x[0] || y[1] != w[0] || x[1] != groups * w[1] || w[0] % groups != 0) return "another batch, or other channels";
  if (call.op == "Conv" && HasInput(call, 2)) {
    const OperandType& bias = call.inputs[2];
    if (bias.shape != Shape{y[1]}) return "bias";
  }
  const WindowAxis axis = WindowAxesOf(call.attributes, x, y, w).second;
  if (axis.stride != 1 || axis.dilation != 1) return "strides or dilations";
  if (std::min(w[1], w[0] / groups) < kRingTerms) return "few channels";
  if (axis.taps < 8 || axis.taps > kMaxHalf) return "windows of another length";
  const LongConvolution n(call);
  if (n.half > kMaxHalf) return "extents";
  // For the gradient of the weights, all rows are needed together, because the sum is over rows.
  const int64_t tuples = call.op == "ConvGradWeight" ? (n.x_tuples() + n.y_tuples()) * n.rows() : n.x_tuples() * n.rows_at_once();
  if (tuples * Ring::FloatsOf(n.half) > kMaxRingBytes / static_cast<int64_t>(sizeof(float))) return "much memory";
  return n.RingWork() * kRingGain > n.PlainWork() ? "few products to save" : "";
}

namespace {

int RingThreadsOf(const KernelCall& call, const LongConvolution& n) {
  return ThreadsFor(static_cast<int64_t>(n.RingWork()), kRingWorkPerThread, call.threads);
}

// Processes the groups in turn, as many at once as there are threads. Computes the values of x for all blocks; then for each tuple of y's
// channels, the values of the weights for a few channels of x at a time, and accumulates their products with the values of x.
class LongConv : public Kernel {
 public:
  explicit LongConv(const KernelCall& call)
      : n_(call),
        ring_(n_.half),
        loops_(BestLoops()),
        has_bias_(HasInput(call, 2) && call.op == "Conv"),
        threads_(RingThreadsOf(call, n_)) {}

  static int64_t Scratch(const KernelCall& call) {
    const LongConvolution n(call);
    const int64_t floats = Ring::FloatsOf(n.half), threads = RingThreadsOf(call, n);
    return floats * (std::min(n.groups, threads) * n.x_tuples() * n.rows_at_once() + threads * (kRingTerms + n.rows_at_once())) *
           static_cast<int64_t>(sizeof(float));
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *x = static_cast<const float*>(inputs[0]), *w = static_cast<const float*>(inputs[1]);
    const auto* bias = has_bias_ ? static_cast<const float*>(inputs[2]) : nullptr;
    auto *y = static_cast<float*>(outputs[0]), *values = static_cast<float*>(scratch);
    const int64_t at_once = std::min<int64_t>(n_.groups, threads_), tuples = n_.x_tuples();
    const int64_t of_group = tuples * n_.rows_at_once() * ring_.floats();
    float* const own = values + at_once * of_group;
    for (int64_t group = 0; group < n_.groups; group += at_once) {
      const int64_t groups = std::min(at_once, n_.groups - group);
      for (int64_t row = 0; row < n_.rows(); row += n_.rows_at_once()) {
        const int64_t rows = std::min(n_.rows_at_once(), n_.rows() - row);
        ParallelFor(groups * tuples * rows, threads_, [&](int64_t i) {
          LoadBlock(x, group + i / rows / tuples, i / rows % tuples, row + i % rows,
                    values + i / rows / tuples * of_group + i % (tuples * rows) * ring_.floats());
        });
        ParallelFor(groups * n_.y_tuples(), threads_, [&](int64_t i) {
          const int64_t at = i / n_.y_tuples();
          float* const memory = own + ThreadIndex() * (kRingTerms + n_.rows_at_once()) * ring_.floats();
          MakeTuple(values + at * of_group, w, bias, group + at, i % n_.y_tuples(), row, rows, memory, y);
        });
      }
    }
  }

 private:
  void LoadBlock(const float* x, int64_t group, int64_t tuple, int64_t row, float* to) const {
    const LongConvolution::Block at = n_.BlockAt(row % n_.blocks);
    const int64_t channel = tuple * ring_.lines(), count = std::min(ring_.lines(), n_.x_channels - channel);
    const float* const from = x + ((row / n_.blocks * n_.groups + group) * n_.x_channels + channel) * n_.x_length + at.x_begin;
    ring_.Load(from, n_.x_length, count, at.x_end - at.x_begin, at.place, false, to);
  }

  // The channels of y in a tuple for rows [first, first + rows); `values` has those of x.
  void MakeTuple(const float* values, const float* w, const float* bias, int64_t group, int64_t tuple, int64_t first, int64_t rows,
                 float* memory, float* y) const {
    const int64_t channel = tuple * ring_.lines(), count = std::min(ring_.lines(), n_.y_channels - channel), floats = ring_.floats();
    const int64_t wide = n_.input_gradient ? n_.x_channels : n_.y_channels;  // channels in a group's rows of w
    const float* const filters = w + group * wide * (n_.input_gradient ? n_.w_x_step : n_.w_y_step) + channel * n_.w_y_step;
    float* const sums = memory + kRingTerms * floats;
    for (int64_t i = 0; i < n_.x_channels;) {
      // Terms from one tuple of x.
      const int64_t lane = i % ring_.lines(), terms = std::min({int64_t{kRingTerms}, n_.x_channels - i, ring_.lines() - lane});
      for (int64_t term = 0; term < terms; ++term)
        ring_.Load(filters + (i + term) * n_.w_x_step, n_.w_y_step, count, n_.taps, 0, n_.input_gradient, memory + term * floats);
      loops_.ring_products({.elements = n_.half,
                            .terms = terms,
                            .rows = rows,
                            .v = memory,
                            .v_step = floats,
                            .s = values + i / ring_.lines() * rows * floats + lane,
                            .s_row = floats,
                            .c = sums,
                            .c_row = floats,
                            .adds = i > 0});
      i += terms;
    }
    for (int64_t row = 0; row < rows; ++row) {
      const LongConvolution::Block at = n_.BlockAt((first + row) % n_.blocks);
      const int64_t y_channel = group * n_.y_channels + channel;
      ring_.Store(sums + row * floats, count, at.end - at.begin, bias != nullptr ? bias + y_channel : nullptr,
                  y + ((first + row) / n_.blocks * n_.groups * n_.y_channels + y_channel) * n_.y_length + at.begin, n_.y_length);
    }
  }

  const LongConvolution n_;
  const Ring ring_;
  const Loops& loops_;
  const bool has_bias_;
  const int threads_;
};

// The gradient of the weights: computes the values of x and dy for all blocks of a group; then for each tuple of dy's channels, the sums
// over blocks of their products with a few channels of x at a time.
class LongConvGradWeight : public Kernel {
 public:
  explicit LongConvGradWeight(const KernelCall& call) : n_(call), ring_(n_.half), loops_(BestLoops()), threads_(RingThreadsOf(call, n_)) {}

  static int64_t Scratch(const KernelCall& call) {
    const LongConvolution n(call);
    const int64_t threads = RingThreadsOf(call, n);
    return Ring::FloatsOf(n.half) * (std::min(n.groups, threads) * (n.x_tuples() + n.y_tuples()) * n.rows() + threads * kRingTerms) *
           static_cast<int64_t>(sizeof(float));
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *x = static_cast<const float*>(inputs[0]), *dy = static_cast<const float*>(inputs[1]);
    auto *dw = static_cast<float*>(outputs[0]), *values = static_cast<float*>(scratch);
    const int64_t at_once = std::min<int64_t>(n_.groups, threads_), rows = n_.rows(), tuples = n_.x_tuples() + n_.y_tuples();
    const int64_t of_group = tuples * rows * ring_.floats();
    const int64_t parts = CeilDiv(n_.x_channels, kRingTerms);
    float* const own = values + at_once * of_group;
    for (int64_t first = 0; first < n_.groups; first += at_once) {
      const int64_t groups = std::min(at_once, n_.groups - first);
      ParallelFor(groups * tuples * rows, threads_, [&](int64_t i) {
        LoadBlock(x, dy, first + i / (tuples * rows), i / rows % tuples, i % rows, values + i * ring_.floats());
      });
      ParallelFor(groups * n_.y_tuples() * parts, threads_, [&](int64_t i) {
        const int64_t group = i / parts / n_.y_tuples();
        MakePart(values + group * of_group, first + group, i / parts % n_.y_tuples(), i % parts * kRingTerms,
                 own + ThreadIndex() * kRingTerms * ring_.floats(), dw);
      });
    }
  }

 private:
  // Tuples of x, followed by those of dy.
  void LoadBlock(const float* x, const float* dy, int64_t group, int64_t tuple, int64_t row, float* to) const {
    const LongConvolution::Block at = n_.BlockAt(row % n_.blocks);
    const int64_t image = row / n_.blocks * n_.groups + group;
    if (tuple < n_.x_tuples()) {
      const int64_t channel = tuple * ring_.lines(), count = std::min(ring_.lines(), n_.x_channels - channel);
      ring_.Load(x + (image * n_.x_channels + channel) * n_.x_length + at.x_begin, n_.x_length, count, at.x_end - at.x_begin, at.place,
                 false, to);
    } else {
      const int64_t channel = (tuple - n_.x_tuples()) * ring_.lines(), count = std::min(ring_.lines(), n_.y_channels - channel);
      ring_.Load(dy + (image * n_.y_channels + channel) * n_.y_length + at.begin, n_.y_length, count, at.end - at.begin, 0, false, to);
    }
  }

  void MakePart(const float* values, int64_t group, int64_t tuple, int64_t input, float* sums, float* dw) const {
    const int64_t channel = tuple * ring_.lines(), count = std::min(ring_.lines(), n_.y_channels - channel), floats = ring_.floats();
    const int64_t columns = std::min(int64_t{kRingTerms}, n_.x_channels - input);
    loops_.ring_sums({.elements = n_.half,
                      .columns = columns,
                      .rows = n_.rows(),
                      .v = values + (n_.x_tuples() + tuple) * n_.rows() * floats,
                      .v_row = floats,
                      .s = values + input / ring_.lines() * n_.rows() * floats + input % ring_.lines(),
                      .s_row = floats,
                      .c = sums,
                      .c_step = floats});
    float* const to = dw + (group * n_.y_channels + channel) * n_.w_y_step + input * n_.w_x_step;
    for (int64_t i = 0; i < columns; ++i) ring_.Store(sums + i * floats, count, n_.taps, nullptr, to + i * n_.w_x_step, n_.w_y_step);
  }

  const LongConvolution n_;
  const Ring ring_;
  const Loops& loops_;
  const int threads_;
};

template <typename T>
constexpr CpuKernel Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.row = {.name = name, .op = op, .domain = domain, .rejects = RejectsLongConvolution, .scratch_bytes = T::Scratch},
          .make = MakeKernel<T>};
}

constexpr CpuKernel kKernels[] = {
    Row<LongConv>("cpu.LongConv", "Conv", ""),
    Row<LongConv>("cpu.LongConvGradInput", "ConvGradInput", "gradloom"),
    Row<LongConvGradWeight>("cpu.LongConvGradWeight", "ConvGradWeight", "gradloom"),
};

}  // namespace

std::span<const CpuKernel> CpuLongConvolutionKernels() { return kKernels; }

}  // namespace gradloom
