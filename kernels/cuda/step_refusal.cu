#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/step_refusal.h"

namespace gradloom::cuda {
namespace {

struct alignas(16) Chunk {
  uint64_t words[2];
};

template <typename T>
void CopyElements(void* to, const void* from, int64_t bytes, const int32_t* refused, cudaStream_t stream) {
  T* const target = static_cast<T*>(to);
  const T* const source = static_cast<const T*>(from);
  ForEachElement(
      bytes / static_cast<int64_t>(sizeof(T)), stream, GRADLOOM_ON_DEVICE(int64_t i) {
        if (!IsRefused(refused)) target[i] = source[i];
      });
}

}  // namespace

void EnqueueRefusal(DataFault* fault, cudaStream_t stream) {
  ForEachElement(
      1, stream, GRADLOOM_ON_DEVICE(int64_t) { Refuse(fault); });
}

void EnqueueStateCopy(void* to, const void* from, int64_t bytes, const int32_t* refused, cudaStream_t stream) {
  const auto all = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | static_cast<uintptr_t>(bytes);
  if (all % sizeof(Chunk) == 0) return CopyElements<Chunk>(to, from, bytes, refused, stream);
  CopyElements<unsigned char>(to, from, bytes, refused, stream);
}

}  // namespace gradloom::cuda
