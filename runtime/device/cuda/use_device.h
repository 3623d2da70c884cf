// The current device of a thread. It belongs to the caller: other libraries of the process, such as PyTorch, put what they make there.
#pragma once

#include <cuda_runtime_api.h>

namespace gradloom::cuda {

// Makes `ordinal` the thread's current device, and remembers which one was before, unless one is remembered already. Memory, streams and
// events are released on their device as well: in a thread that has chosen none, CUDA would make a context on device 0 for that.
cudaError_t UseDevice(int ordinal) noexcept;

// Makes the remembered device current again and forgets it. Does nothing if there is none, or if it has no context, because that would be
// made here.
void RestoreDevice() noexcept;

}  // namespace gradloom::cuda
