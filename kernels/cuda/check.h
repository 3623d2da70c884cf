// What CUDA's libraries answer, as errors of ours.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "runtime/base/error.h"

namespace gradloom::cuda {

// Error(kDevice) with the call, what CUDA says of it and what to do; Error(kResource) where memory is short.
[[noreturn]] void ThrowCuda(cudaError_t error, const char* call);

inline void CheckCuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) ThrowCuda(error, call);
}

}  // namespace gradloom::cuda

#define GRADLOOM_CUDA(call) ::gradloom::cuda::CheckCuda((call), #call)
