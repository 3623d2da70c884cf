// A kernel that takes time, for tests that disturb the order in which streams advance.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gradloom::cuda {

void EnqueueDelay(int64_t nanoseconds, cudaStream_t stream);

}  // namespace gradloom::cuda
