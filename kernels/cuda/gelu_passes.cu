#include <cmath>

#include "kernels/cuda/gelu_passes.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/reference/operands.h"

namespace gradloom::cuda {
namespace {

template <typename R>
GRADLOOM_DEVICE R TanhOfGelu(R x) {
  return ::tanh(R(0.79788456080286535588) * (x + R(0.044715) * x * x * x));
}

template <typename T>
void Relu(int64_t n, T* y, cudaStream_t stream) {
  using R = Arithmetic<T>;
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        if (static_cast<R>(y[i]) < R(0)) y[i] = static_cast<T>(R(0));
      });
}

template <typename T>
void Gelu(int64_t n, const T* x, T* y, cudaStream_t stream) {
  using R = Arithmetic<T>;
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const R value = static_cast<R>(x[i]);
        y[i] = static_cast<T>(R(0.5) * value * (R(1) + TanhOfGelu(value)));
      });
}

template <typename T>
void GeluGrad(int64_t n, const T* x, T* gradient, cudaStream_t stream) {
  using R = Arithmetic<T>;
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const R value = static_cast<R>(x[i]), t = TanhOfGelu(value), rest = R(1) - t * t;
        R slope = R(0.5) * (R(1) + t);
        // If the tanh rounds to 1, skips the term: for large values, it would be infinity times 0.
        if (rest != R(0)) slope += R(0.5) * value * rest * R(0.79788456080286535588) * (R(1) + R(3 * 0.044715) * value * value);
        gradient[i] = static_cast<T>(static_cast<R>(gradient[i]) * slope);
      });
}

}  // namespace

void ReluInPlace(DType dtype, int64_t n, void* y, cudaStream_t stream) {
  WithFloating(dtype, [&]<typename T>(std::type_identity<T>) { Relu(n, static_cast<T*>(y), stream); });
}

void GeluPass(DType dtype, int64_t n, const void* x, void* y, cudaStream_t stream) {
  WithFloating(dtype, [&]<typename T>(std::type_identity<T>) { Gelu(n, static_cast<const T*>(x), static_cast<T*>(y), stream); });
}

void GeluGradInPlace(DType dtype, int64_t n, const void* x, void* gradient, cudaStream_t stream) {
  WithFloating(dtype, [&]<typename T>(std::type_identity<T>) { GeluGrad(n, static_cast<const T*>(x), static_cast<T*>(gradient), stream); });
}

}  // namespace gradloom::cuda
