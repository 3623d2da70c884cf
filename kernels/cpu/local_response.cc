// LRN and its gradient in float32, row-major or channels-last: tiles of points, with their channels as rows in scratch memory.
#include <algorithm>
#include <string>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 13;
constexpr int64_t kMaxChannels = 1 << 12;  // a tile of this many is 1 MiB

// The operand x of either operator.
const OperandType& Normalized(const KernelCall& call) { return call.inputs.back(); }

class LocalResponseBase : public Kernel {
 protected:
  // `tiles` is the number of tiles in a thread's scratch memory.
  LocalResponseBase(const KernelCall& call, int64_t tiles)
      : loops_(BestLoops()), tiles_(tiles), images_(Normalized(call).shape[0]), channels_(Normalized(call).shape[1]) {
    const Shape& x = Normalized(call).shape;
    points_ = Product(x, 2, x.rank());
    innermost_ = !Normalized(call).layout.plain();
    threads_ = ThreadsFor(x.elements(), kElementsPerThread, call.threads);
    const int64_t size = call.attributes.Int("size", 1);
    args_ = {.channels = channels_,
             .before = (size - 1) / 2,
             .after = size / 2,
             .bias = static_cast<float>(call.attributes.Float("bias", 1)),
             .factor = static_cast<float>(call.attributes.Float("alpha", 1e-4) / static_cast<double>(size)),
             .beta = static_cast<float>(call.attributes.Float("beta", 0.75))};
  }

  int64_t tile() const { return channels_ * kResponsePoints; }

  // Calls f(offset of the tile in the tensors, points in the tile, scratch memory of the thread) in parallel.
  template <typename F>
  void ForEachTile(void* scratch, F f) const {
    ParallelFor(images_ * Parts(), threads_, [&](int64_t i) {
      const int64_t begin = i % Parts() * kResponsePoints;
      f(i / Parts() * channels_ * points_ + begin * (innermost_ ? channels_ : 1), std::min<int64_t>(kResponsePoints, points_ - begin),
        static_cast<float*>(scratch) + ThreadIndex() * tiles_ * tile());
    });
  }

  // Copy between a tile of a tensor and rows of kResponsePoints. Rows are zero-padded after the last point.
  void Load(const float* x, int64_t points, float* rows) const {
    if (points < kResponsePoints) std::fill_n(rows, tile(), 0.0f);
    if (innermost_) return loops_.transpose(x, channels_, rows, kResponsePoints, channels_, points);
    for (int64_t c = 0; c < channels_; ++c) std::copy_n(x + c * points_, points, rows + c * kResponsePoints);
  }
  void Store(const float* rows, int64_t points, float* y) const {
    if (innermost_) return loops_.transpose(rows, kResponsePoints, y, channels_, points, channels_);
    for (int64_t c = 0; c < channels_; ++c) std::copy_n(rows + c * kResponsePoints, points, y + c * points_);
  }

  const Loops& loops_;
  ResponseArgs args_;

 private:
  int64_t Parts() const { return (points_ + kResponsePoints - 1) / kResponsePoints; }

  const int64_t tiles_, images_, channels_;
  int64_t points_;
  bool innermost_;
  int threads_;
};

class LocalResponse : public LocalResponseBase {
 public:
  static constexpr int64_t kTiles = 3;

  explicit LocalResponse(const KernelCall& call) : LocalResponseBase(call, kTiles) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto* x = static_cast<const float*>(inputs[0]);
    auto* y = static_cast<float*>(outputs[0]);
    ForEachTile(scratch, [&](int64_t at, int64_t points, float* memory) {
      float *rows = memory, *bases = memory + tile(), *powers = memory + 2 * tile();
      Load(x + at, points, rows);
      loops_.local_response(args_, rows, bases, powers);
      for (int64_t i = 0; i < tile(); ++i) rows[i] *= powers[i];
      Store(rows, points, y + at);
    });
  }
};

class LrnGrad : public LocalResponseBase {
 public:
  static constexpr int64_t kTiles = 5;

  explicit LrnGrad(const KernelCall& call) : LocalResponseBase(call, kTiles) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const auto *dy = static_cast<const float*>(inputs[0]), *x = static_cast<const float*>(inputs[1]);
    auto* dx = static_cast<float*>(outputs[0]);
    ForEachTile(scratch, [&](int64_t at, int64_t points, float* memory) {
      float *rows = memory, *g = memory + tile(), *bases = memory + 2 * tile(), *powers = memory + 3 * tile(), *to = memory + 4 * tile();
      Load(x + at, points, rows);
      Load(dy + at, points, g);
      loops_.local_response(args_, rows, bases, powers);
      loops_.local_response_grad(args_, g, rows, bases, powers, to);
      Store(to, points, dx + at);
    });
  }
};

std::string Rejects(const KernelCall& call) {
  const OperandType& x = Normalized(call);
  const int rank = x.shape.rank();
  if (rank < 2) return "rank " + std::to_string(rank);
  if (x.shape.elements() == 0 || x.shape[1] > kMaxChannels) return "extents";
  if (!x.layout.plain() && !SameMemoryOrder(x.layout, ChannelsLast(rank), x.shape)) return "layout " + x.layout.ToString();
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (operand.dtype != DType::kFloat32) return std::string(DTypeName(operand.dtype));
      if (operand.shape != x.shape || operand.layout != x.layout) return "operands that differ";
    }
  }
  const int64_t size = call.attributes.Int("size", 1);
  return size < 1 || size > 2 * kMaxChannels ? "size " + std::to_string(size) : "";
}

template <typename K>
int64_t Scratch(const KernelCall& call) {
  return std::max(call.threads, 1) * K::kTiles * Normalized(call).shape[1] * kResponsePoints * static_cast<int64_t>(sizeof(float));
}

template <typename K>
constexpr CpuKernel Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.row = {.name = name, .op = op, .domain = domain, .rejects = Rejects, .scratch_bytes = Scratch<K>}, .make = MakeKernel<K>};
}

constexpr CpuKernel kKernels[] = {
    Row<LocalResponse>("cpu.LRN", "LRN", ""),
    Row<LrnGrad>("cpu.LrnGrad", "LrnGrad", "gradloom"),
};

}  // namespace

std::span<const CpuKernel> CpuLocalResponseKernels() { return kKernels; }

}  // namespace gradloom
