#include "kernels/cpu/convolution/depthwise.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/convolution/channel_multiplier.h"
#include "kernels/cpu/convolution/weight_gradients.h"
#include "kernels/cpu/convolution/window_axis.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kChunk = 64;  // channels of which the rows of a window stay in the L1 cache
constexpr int64_t kProductsPerThread = 1 << 16;
constexpr int64_t kMaxGroups = 8;  // of images; several threads share the channels of a chunk

// dw[C, 1, KD, KH, KW] from x[N, D, H, W, C / M] and dy[N, OD, OH, OW, C]; a missing depth or height is 1. Sums over a row, an image, a
// group of images and the batch are separate and added in this order, whatever the number of threads. With M > 1 filters for each channel
// of x, a row of x is repeated to dy's channels before it is multiplied.
class DepthwiseGradWeight : public Kernel {
 public:
  explicit DepthwiseGradWeight(const KernelCall& call) : loops_(BestLoops()) {
    const Shape &x = call.inputs[0].shape, &y = call.inputs[1].shape, &w = call.outputs[0].shape;
    images_ = x[0], channels_ = w[0], times_ = w[0] / x[1], chunk_ = std::min(ChunkOf(call), channels_);
    const std::array<WindowAxis, 3> axes = VolumeAxesOf(call.attributes, x, y, w);
    depth_ = axes[0], height_ = axes[1], width_ = axes[2];
    for (int64_t kw = 0; kw < width_.taps; ++kw) {
      const WindowAxis::Range under = width_.OutputRange(kw);
      taps_.push_back({.x = (kw * width_.dilation - width_.pad) * step(), .begin = under.begin, .end = under.end});
    }
    groups_ = GroupsOf(call);
    chunks_ = CeilDiv(channels_, chunk_);
    threads_ = Threads(call);
    std::vector<int64_t> index(static_cast<size_t>(w.rank()), 0);
    for (int64_t tap = 0; tap < taps(); ++tap) {
      index[index.size() - 1] = tap % width_.taps;
      if (w.rank() > 3) index[index.size() - 2] = tap / width_.taps % height_.taps;
      if (w.rank() > 4) index[2] = tap / (width_.taps * height_.taps);
      for (index[0] = 0; index[0] < channels_; ++index[0]) weight_offsets_.push_back(call.outputs[0].layout.Offset(w, index));
    }
    weights_ = call.outputs[0].layout.elements(w);
    padded_ = weights_ != w.elements();
  }

  static int64_t Scratch(const KernelCall& call) {
    return (AllSums(call) + (TimesOf(call) > 1 ? Threads(call) * RowOf(call) : 0)) * static_cast<int64_t>(sizeof(float));
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *x = static_cast<const float*>(inputs[0]), *dy = static_cast<const float*>(inputs[1]);
    auto *dw = static_cast<float*>(outputs[0]), *sums = static_cast<float*>(scratch);
    float* const rows = sums + AlignUp(2 * groups_ * channels_ * taps(), 16);
    const int64_t row = AlignUp(width_.in * chunk_, 16);
    if (padded_) std::fill_n(dw, weights_, 0.0f);
    ParallelFor(groups_ * chunks_, threads_,
                [&](int64_t task) { SumImages(x, dy, task % groups_, task / groups_, sums, rows + ThreadIndex() * row); });
    ParallelFor(chunks_, threads_, [&](int64_t chunk) { SumGroups(chunk, sums, dw); });
  }

 private:
  int64_t taps() const { return depth_.taps * height_.taps * width_.taps; }
  // From one point of a row of x to the next.
  int64_t step() const { return times_ == 1 ? channels_ : chunk_; }
  static int Threads(const KernelCall& call) { return ThreadsFor(ProductsOfWeightGradient(call), kProductsPerThread, call.threads); }
  static int64_t GroupsOf(const KernelCall& call) { return std::min(call.inputs[0].shape[0], kMaxGroups); }
  static int64_t TimesOf(const KernelCall& call) { return call.outputs[0].shape[0] / call.inputs[0].shape[1]; }
  // Whole channels of x.
  static int64_t ChunkOf(const KernelCall& call) { return std::max<int64_t>(kChunk / TimesOf(call), 1) * TimesOf(call); }
  // Floats of scratch memory: the sums, and a row of x of a thread with repeated channels.
  static int64_t AllSums(const KernelCall& call) { return AlignUp(2 * GroupsOf(call) * call.outputs[0].shape.elements(), 16); }
  static int64_t RowOf(const KernelCall& call) {
    const Shape& x = call.inputs[0].shape;
    return AlignUp(x[x.rank() - 1] * ChunkOf(call), 16);
  }
  int64_t ChannelsOf(int64_t chunk) const { return std::min(chunk_, channels_ - chunk * chunk_); }
  // The sums of a group of images over a chunk's channels; behind them there is room for those of one image.
  float* SumsOf(int64_t group, int64_t chunk, float* sums) const { return sums + 2 * taps() * (group * channels_ + chunk * chunk_); }

  void SumImages(const float* x, const float* dy, int64_t group, int64_t chunk, float* sums, float* row) const {
    const int64_t c = chunk * chunk_, n = ChannelsOf(chunk);
    float *const all = SumsOf(group, chunk, sums), *const image = all + taps() * n;
    std::fill_n(all, taps() * n, 0.0f);
    for (int64_t i = images_ * group / groups_; i < images_ * (group + 1) / groups_; ++i) {
      std::fill_n(image, taps() * n, 0.0f);
      for (int64_t o = 0; o < depth_.out; ++o) {
        for (int64_t kd = 0; kd < depth_.taps; ++kd) {
          const int64_t d = o * depth_.stride + kd * depth_.dilation - depth_.pad;
          if (d < 0 || d >= depth_.in) continue;
          AddPlane(x + ((i * depth_.in + d) * height_.in * width_.in * channels_ + c) / times_,
                   dy + (i * depth_.out + o) * height_.out * width_.out * channels_ + c, n, image + kd * height_.taps * width_.taps * n,
                   row);
        }
      }
      for (int64_t j = 0; j < taps() * n; ++j) all[j] += image[j];
    }
  }

  void SumGroups(int64_t chunk, float* sums, float* dw) const {
    const int64_t c = chunk * chunk_, n = ChannelsOf(chunk);
    float* const all = SumsOf(0, chunk, sums);
    for (int64_t group = 1; group < groups_; ++group) {
      const float* const more = SumsOf(group, chunk, sums);
      for (int64_t j = 0; j < taps() * n; ++j) all[j] += more[j];
    }
    for (int64_t tap = 0; tap < taps(); ++tap) {
      for (int64_t j = 0; j < n; ++j) dw[weight_offsets_[static_cast<size_t>(tap * channels_ + c + j)]] = all[tap * n + j];
    }
  }

  // `row` is memory for a row of x with repeated channels.
  void AddPlane(const float* x, const float* dy, int64_t n, float* sums, float* row) const {
    for (int64_t h = 0; h < height_.in; ++h, x += width_.in * channels_ / times_) {
      const float* from = times_ == 1 ? x : nullptr;
      for (int64_t kh = 0; kh < height_.taps; ++kh) {
        const int64_t above = h + height_.pad - kh * height_.dilation, o = above / height_.stride;
        if (above < 0 || above % height_.stride != 0 || o >= height_.out) continue;
        if (from == nullptr) from = Repeat(x, n, row);
        loops_.depthwise_gradient({.x = from,
                                   .x_step = width_.stride * step(),
                                   .y = dy + o * width_.out * channels_,
                                   .y_step = channels_,
                                   .channels = n,
                                   .taps = taps_.data(),
                                   .count = width_.taps,
                                   .to = sums + kh * width_.taps * n});
      }
    }
  }

  const float* Repeat(const float* x, int64_t n, float* row) const {
    if (n == channels_) {
      RepeatElements(x, width_.in * n / times_, times_, row);
    } else {
      for (int64_t p = 0; p < width_.in; ++p) RepeatElements(x + p * (channels_ / times_), n / times_, times_, row + p * chunk_);
    }
    return row;
  }

  const Loops& loops_;
  int64_t images_, channels_, times_, groups_, chunk_, chunks_;  // channels of dy, and how many of them read a channel of x
  WindowAxis depth_, height_, width_;
  std::vector<DepthwiseGradTap> taps_;  // of a row of the windows
  int threads_;
  std::vector<int64_t> weight_offsets_;  // offsets of dw's elements, by tap and channel
  int64_t weights_;                      // elements of dw, including padding
  bool padded_;
};

std::string Rejects(const KernelCall& call) {
  if (std::string why = RejectsElements(call); !why.empty()) return why;
  const OperandType &x = call.inputs[0], &y = call.inputs[1], &w = call.outputs[0];
  const int rank = x.shape.rank();
  if (rank < 3 || rank > 5 || y.shape.rank() != rank || w.shape.rank() != rank) return "rank " + std::to_string(rank);
  const int64_t channels = x.shape[1];
  if (call.attributes.Int("group", 1) != channels || channels < 2 || y.shape[1] != w.shape[0] || w.shape[0] % channels != 0 ||
      w.shape[1] != 1) {
    return "other than filters for single channels";
  }
  if (y.shape[0] != x.shape[0]) return "another batch";
  if (std::string why = RejectsGradientLayouts(call); !why.empty()) return why;
  return "";
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.ConvGradWeight",
             .op = "ConvGradWeight",
             .domain = "gradloom",
             .rejects = Rejects,
             .scratch_bytes = DepthwiseGradWeight::Scratch},
     .make = MakeKernel<DepthwiseGradWeight>},
};

}  // namespace

bool PrefersDepthwise(KernelCall& call) {
  if (call.op != "ConvGradWeight") return false;
  KernelCall preferred = call;
  const int rank = preferred.inputs[0].shape.rank();
  for (OperandType& input : preferred.inputs) input.layout = ChannelsLast(rank);
  if (!Rejects(preferred).empty()) return false;
  call = std::move(preferred);
  return true;
}

std::span<const CpuKernel> CpuDepthwiseKernels() { return kKernels; }

}  // namespace gradloom
