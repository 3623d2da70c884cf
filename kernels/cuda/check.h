// Turns error codes of the CUDA runtime into Error.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "runtime/base/error.h"

namespace gradloom::cuda {

// Throws Error(kDevice) with the call, CUDA's message and what to do about it, or Error(kResource) if memory is short.
[[noreturn]] void ThrowCuda(cudaError_t error, const char* call);

// Throws Error(kResource) with the call and what a library says, and what to do about it.
[[noreturn]] void ThrowMemoryUsedUp(const std::string& call, const std::string& said);

inline void CheckCuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) ThrowCuda(error, call);
}

}  // namespace gradloom::cuda

#define GRADLOOM_CUDA(call) ::gradloom::cuda::CheckCuda((call), #call)
