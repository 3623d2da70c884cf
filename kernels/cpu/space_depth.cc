// DepthToSpace and SpaceToDepth: a row of the image is interleaved from as many rows of channels as a block is wide.
#include <string>

#include "kernels/cpu/families.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 15;

// Copies between `wide`[j + block * x] and `rows`[j * step + x], x < width.
template <bool kToSpace, int64_t kBlock, typename T>
void InterleaveBlocks(int64_t block, int64_t step, int64_t width, const T* from, T* to) {
  if constexpr (kBlock > 0) block = kBlock;
  for (int64_t x = 0; x < width; ++x) {
    for (int64_t j = 0; j < block; ++j) {
      if constexpr (kToSpace) {
        to[x * block + j] = from[j * step + x];
      } else {
        to[j * step + x] = from[x * block + j];
      }
    }
  }
}

template <bool kToSpace, typename T>
void Interleave(int64_t block, int64_t step, int64_t width, const T* from, T* to) {
  switch (block) {
    case 2: return InterleaveBlocks<kToSpace, 2>(block, step, width, from, to);
    case 3: return InterleaveBlocks<kToSpace, 3>(block, step, width, from, to);
    case 4: return InterleaveBlocks<kToSpace, 4>(block, step, width, from, to);
    default: return InterleaveBlocks<kToSpace, 0>(block, step, width, from, to);
  }
}

template <bool kToSpace>
class SpaceDepth : public Kernel {
 public:
  explicit SpaceDepth(const KernelCall& call)
      : dtype_(call.inputs[0].dtype),
        block_(call.attributes.Int("blocksize", 1)),
        blocks_inner_(call.attributes.String("mode", "DCR") == "CRD"),
        threads_(ThreadsFor(call.outputs[0].shape.elements(), kElementsPerThread, call.threads)) {
    const Shape& depth = (kToSpace ? call.inputs[0] : call.outputs[0]).shape;
    images_ = depth[0];
    channels_ = depth[1] / (block_ * block_);
    height_ = depth[2];
    width_ = depth[3];
  }

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    WithWidth(dtype_, [&]<typename T>(T) {
      const T* const from = static_cast<const T*>(inputs[0]);
      T* const to = static_cast<T*>(outputs[0]);
      const int64_t plane = height_ * width_, step = (blocks_inner_ ? 1 : channels_) * plane;
      ParallelFor(images_ * channels_ * height_ * block_, threads_, [&](int64_t row) {
        const int64_t i = row % block_, y = row / block_ % height_, image = row / (block_ * height_);
        const int64_t n = image / channels_, c = image % channels_;
        const int64_t channel = blocks_inner_ ? (c * block_ + i) * block_ : i * block_ * channels_ + c;
        const int64_t wide = row * width_ * block_, deep = (n * channels_ * block_ * block_ + channel) * plane + y * width_;
        Interleave<kToSpace>(block_, step, width_, from + (kToSpace ? deep : wide), to + (kToSpace ? wide : deep));
      });
    });
  }

 private:
  DType dtype_;
  int64_t block_;
  bool blocks_inner_;  // channels are [C, block, block], otherwise [block, block, C]
  int threads_;
  int64_t images_, channels_, height_, width_;  // channels of the image; height and width of the depth tensor
};

std::string Rejects(const KernelCall& call) {
  const Shape &x = call.inputs[0].shape, &y = call.outputs[0].shape;
  if (x.rank() != 4 || y.rank() != 4 || x.elements() == 0) return "no images";
  const Shape& depth = call.op == "DepthToSpace" ? x : y;
  const Shape& space = call.op == "DepthToSpace" ? y : x;
  const int64_t block = call.attributes.Int("blocksize", 1);
  const bool fits = block > 0 && depth[0] == space[0] && depth[1] == space[1] * block * block && space[2] == depth[2] * block &&
                    space[3] == depth[3] * block;
  if (!fits) return "blocks that do not fit";
  if (!HasWidth(call.inputs[0].dtype)) return std::string(DTypeName(call.inputs[0].dtype));
  return RejectsLayouts(call);
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.DepthToSpace", .op = "DepthToSpace", .domain = "", .rejects = Rejects}, .make = MakeKernel<SpaceDepth<true>>},
    {.row = {.name = "cpu.SpaceToDepth", .op = "SpaceToDepth", .domain = "", .rejects = Rejects}, .make = MakeKernel<SpaceDepth<false>>},
};

}  // namespace

std::span<const CpuKernel> CpuSpaceDepthKernels() { return kKernels; }

}  // namespace gradloom
