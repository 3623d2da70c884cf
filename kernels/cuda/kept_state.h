// Steps that have been refused, beside the kernels that refuse them and those that keep what lives between steps.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/cuda_kernel.h"

namespace gradloom::cuda {

// As a kernel does that finds something wrong, but for what it notes.
void EnqueueRefusal(DataFault* fault, cudaStream_t stream);

// Copies within the memory of a device where the step has not been refused; `refused` as in KernelSite.
void EnqueueStateCopy(void* to, const void* from, int64_t bytes, const int32_t* refused, cudaStream_t stream);

}  // namespace gradloom::cuda
