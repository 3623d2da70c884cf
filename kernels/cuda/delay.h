// A kernel that occupies a stream for a while, for tests that perturb the relative progress of streams.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gradloom::cuda {

void EnqueueDelay(int64_t nanoseconds, cudaStream_t stream);

}  // namespace gradloom::cuda
