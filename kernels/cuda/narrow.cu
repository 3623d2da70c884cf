// Casts to and from types of at most eight bits, through double, which represents all their values.
#include "kernels/cuda/narrow.cuh"

namespace gradloom::cuda {
namespace {

void CastNarrow(int64_t n, const void* in, DType from, void* out, DType to, const NarrowRounding& rounding, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) { StoreNumber(out, to, i, LoadNumber(in, from, i), rounding); });
}

std::unique_ptr<Kernel> MakeCast(const KernelCall& call, const KernelSite&) {
  NarrowRounding rounding{.saturate = call.attributes.Int("saturate", 1) != 0};
  const std::string power = call.attributes.String("round_mode", "up");
  if (power == "down") rounding.power = NarrowRounding::Power::kDown;
  if (power == "nearest") rounding.power = NarrowRounding::Power::kNearest;
  return MakeKernel([=, n = call.inputs[0].shape.elements(), from = call.inputs[0].dtype, to = call.outputs[0].dtype](const Launch& l) {
    CastNarrow(n, l.inputs[0], from, l.outputs[0], to, rounding, l.stream);
  });
}

constexpr CudaKernel kNarrowKernels[] = {
    {"cuda.narrow.Cast", MakeCast},
    {"cuda.narrow.CastLike", MakeCast},
};

}  // namespace

std::span<const CudaKernel> NarrowKernels() { return kNarrowKernels; }

}  // namespace gradloom::cuda
