// Refusing a step from outside its kernels, and copies that respect a refusal.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/cuda_kernel.h"

namespace gradloom::cuda {

// Refuses the step as a kernel does on a data error, but records no error.
void EnqueueRefusal(DataFault* fault, cudaStream_t stream);

// Copies within the memory of a device, unless the step has been refused; see KernelSite::refused.
void EnqueueStateCopy(void* to, const void* from, int64_t bytes, const int32_t* refused, cudaStream_t stream);

}  // namespace gradloom::cuda
