// Sums and products, with their roundings. nvcc makes one operation of a product and a sum with it, which may differ in the last bit, but
// not in every kernel where it could. So kernels that must have the same bits say where they round.
#pragma once

#include <cmath>

#include "kernels/cuda/launch.cuh"

namespace gradloom::cuda {

// a * b + c, rounded once.
GRADLOOM_DEVICE float MultiplyAdd(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

GRADLOOM_DEVICE double MultiplyAdd(double a, double b, double c) {
#ifdef __CUDA_ARCH__
  return __fma_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

// a + b and a * b by themselves, also if a is a product, or the product a term.
GRADLOOM_DEVICE float SeparateSum(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

GRADLOOM_DEVICE float SeparateProduct(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

}  // namespace gradloom::cuda
