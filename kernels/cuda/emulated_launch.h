// Kernels without a GPU, for tests: see launch.cuh.
#pragma once

#include <driver_types.h>

#include <functional>

namespace gradloom::cuda {

// Enqueues the work on a stream of the emulated runtime, which tests/cuda defines.
void EmulatedLaunch(cudaStream_t stream, std::function<void()> work);

}  // namespace gradloom::cuda
