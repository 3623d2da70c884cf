#include "kernels/cuda/dnn_mask.h"
#include "kernels/cuda/launch.cuh"
#include "runtime/base/half.h"

namespace gradloom::cuda {
namespace {

// Low enough to hide a key, but finite in float32 when added to any score, also if the sum is multiplied by log2(e), as for exp2.
template <typename T>
GRADLOOM_DEVICE float LowestOf() {
  return std::is_same_v<T, Half> ? -65504.0f : -1e30f;
}

template <typename T>
void Write(const T* mask, int64_t elements, T* out, cudaStream_t stream) {
  ForEachElement(
      elements, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const float added = static_cast<float>(mask[i]);
        out[i] = static_cast<T>(added < LowestOf<T>() ? LowestOf<T>() : added);
      });
}

template <typename T>
void WriteBoolMask(const bool* mask, int64_t elements, T* out, cudaStream_t stream) {
  ForEachElement(
      elements, stream, GRADLOOM_ON_DEVICE(int64_t i) { out[i] = static_cast<T>(mask[i] ? 0.0f : LowestOf<T>()); });
}

template <typename T>
void Write(DType mask_dtype, const void* mask, int64_t elements, void* out, cudaStream_t stream) {
  if (mask_dtype == DType::kBool) return WriteBoolMask(static_cast<const bool*>(mask), elements, static_cast<T*>(out), stream);
  Write(static_cast<const T*>(mask), elements, static_cast<T*>(out), stream);
}

}  // namespace

void WriteDnnMask(DType mask_dtype, const void* mask, int64_t elements, DType dtype, void* out, CUstream_st* stream) {
  if (dtype == DType::kFloat16) return Write<Half>(mask_dtype, mask, elements, out, stream);
  Write<Bfloat16>(mask_dtype, mask, elements, out, stream);
}

}  // namespace gradloom::cuda
