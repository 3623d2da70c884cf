#include "kernels/cpu/convolution/depthwise.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kernels/catalog/physical.h"
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

// dw[C, 1, KD, KH, KW] from x[N, D, H, W, C] and dy[N, OD, OH, OW, C]; a missing depth or height is 1. Sums over a row, an image, a group
// of images and the batch are separate and added in this order, whatever the number of threads.
class DepthwiseGradWeight : public Kernel {
 public:
  explicit DepthwiseGradWeight(const KernelCall& call) : loops_(BestLoops()) {
    const Shape &x = call.inputs[0].shape, &y = call.inputs[1].shape, &w = call.outputs[0].shape;
    images_ = x[0], channels_ = x[1];
    const std::array<WindowAxis, 3> axes = VolumeAxesOf(call.attributes, x, y, w);
    depth_ = axes[0], height_ = axes[1], width_ = axes[2];
    for (int64_t kw = 0; kw < width_.taps; ++kw) under_.push_back(width_.OutputRange(kw));
    groups_ = GroupsOf(call);
    chunks_ = CeilDiv(channels_, kChunk);
    threads_ = ThreadsFor(images_ * depth_.out * height_.out * width_.out * channels_ * taps(), kProductsPerThread, call.threads);
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
    return 2 * GroupsOf(call) * call.outputs[0].shape.elements() * static_cast<int64_t>(sizeof(float));
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *x = static_cast<const float*>(inputs[0]), *dy = static_cast<const float*>(inputs[1]);
    auto *dw = static_cast<float*>(outputs[0]), *sums = static_cast<float*>(scratch);
    if (padded_) std::fill_n(dw, weights_, 0.0f);
    ParallelFor(groups_ * chunks_, threads_, [&](int64_t task) { SumImages(x, dy, task % groups_, task / groups_, sums); });
    ParallelFor(chunks_, threads_, [&](int64_t chunk) { SumGroups(chunk, sums, dw); });
  }

 private:
  int64_t taps() const { return depth_.taps * height_.taps * width_.taps; }
  static int64_t GroupsOf(const KernelCall& call) { return std::min(call.inputs[0].shape[0], kMaxGroups); }
  int64_t ChannelsOf(int64_t chunk) const { return std::min(kChunk, channels_ - chunk * kChunk); }
  // The sums of a group of images over a chunk's channels; behind them there is room for those of one image.
  float* SumsOf(int64_t group, int64_t chunk, float* sums) const { return sums + 2 * taps() * (group * channels_ + chunk * kChunk); }

  void SumImages(const float* x, const float* dy, int64_t group, int64_t chunk, float* sums) const {
    const int64_t c = chunk * kChunk, n = ChannelsOf(chunk);
    float *const all = SumsOf(group, chunk, sums), *const image = all + taps() * n;
    std::fill_n(all, taps() * n, 0.0f);
    for (int64_t i = images_ * group / groups_; i < images_ * (group + 1) / groups_; ++i) {
      std::fill_n(image, taps() * n, 0.0f);
      for (int64_t o = 0; o < depth_.out; ++o) {
        for (int64_t kd = 0; kd < depth_.taps; ++kd) {
          const int64_t d = o * depth_.stride + kd * depth_.dilation - depth_.pad;
          if (d < 0 || d >= depth_.in) continue;
          AddPlane(x + (i * depth_.in + d) * height_.in * width_.in * channels_ + c,
                   dy + (i * depth_.out + o) * height_.out * width_.out * channels_ + c, n, image + kd * height_.taps * width_.taps * n);
        }
      }
      for (int64_t j = 0; j < taps() * n; ++j) all[j] += image[j];
    }
  }

  void SumGroups(int64_t chunk, float* sums, float* dw) const {
    const int64_t c = chunk * kChunk, n = ChannelsOf(chunk);
    float* const all = SumsOf(0, chunk, sums);
    for (int64_t group = 1; group < groups_; ++group) {
      const float* const more = SumsOf(group, chunk, sums);
      for (int64_t j = 0; j < taps() * n; ++j) all[j] += more[j];
    }
    for (int64_t tap = 0; tap < taps(); ++tap) {
      for (int64_t j = 0; j < n; ++j) dw[weight_offsets_[static_cast<size_t>(tap * channels_ + c + j)]] = all[tap * n + j];
    }
  }

  void AddPlane(const float* x, const float* dy, int64_t n, float* sums) const {
    for (int64_t o = 0; o < height_.out; ++o) {
      for (int64_t kh = 0; kh < height_.taps; ++kh) {
        const int64_t h = o * height_.stride + kh * height_.dilation - height_.pad;
        if (h < 0 || h >= height_.in) continue;
        for (int64_t kw = 0; kw < width_.taps; ++kw) {
          const WindowAxis::Range& range = under_[static_cast<size_t>(kw)];
          loops_.add_products(x + (h * width_.in + range.first) * channels_, width_.stride * channels_,
                              dy + (o * width_.out + range.begin) * channels_, channels_, range.end - range.begin, n,
                              sums + (kh * width_.taps + kw) * n);
        }
      }
    }
  }

  const Loops& loops_;
  int64_t images_, channels_, groups_, chunks_;
  WindowAxis depth_, height_, width_;
  std::vector<WindowAxis::Range> under_;  // by tap of the width
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
  if (call.attributes.Int("group", 1) != channels || channels < 2 || y.shape[1] != channels || w.shape[0] != channels || w.shape[1] != 1) {
    return "other than a filter for each channel";
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
