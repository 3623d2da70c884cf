// The parts common to Resize and GridSample.
#pragma once

#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/offset_calculator.cuh"

namespace gradloom::cuda {

// Keys' cubic convolution kernel with parameter a at distance t and at distance 1 + t, for t in [0, 1]. Factored to avoid cancellation near
// its zeros: ((a + 2) t - (a + 3)) t^2 + 1 and ((a (1 + t) - 5 a) (1 + t) + 8 a) (1 + t) - 4 a.
template <typename A>
GRADLOOM_DEVICE A CubicNear(A a, A t) {
  return (1 - t) * (1 + t - (a + 2) * t * t);
}
template <typename A>
GRADLOOM_DEVICE A CubicFar(A a, A t) {
  return a * t * (1 - t) * (1 - t);
}

// Defined in grid_sample.cu.
std::unique_ptr<Kernel> MakeGridSample(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeGridSampleGrad(const KernelCall& call, const KernelSite& site);

}  // namespace gradloom::cuda
