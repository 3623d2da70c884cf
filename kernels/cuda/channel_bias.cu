#include "kernels/cuda/channel_bias.h"
#include "kernels/cuda/offset_calculator.cuh"
#include "kernels/reference/operands.h"

namespace gradloom::cuda {
namespace {

template <typename T>
void Add(const T* bias, int64_t channels, int64_t inner, int64_t elements, T* y, cudaStream_t stream) {
  using R = Arithmetic<T>;
  ForEachElement(
      elements, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const int64_t channel = Divide(Divide(i, inner).quotient, channels).rest;
        y[i] = static_cast<T>(static_cast<R>(y[i]) + static_cast<R>(bias[channel]));
      });
}

}  // namespace

void AddChannelBias(DType dtype, const void* bias, int64_t channels, int64_t inner, int64_t elements, void* y, cudaStream_t stream) {
  WithFloating(dtype, [&]<typename T>(std::type_identity<T>) {
    Add(static_cast<const T*>(bias), channels, inner, elements, static_cast<T*>(y), stream);
  });
}

}  // namespace gradloom::cuda
