// Shared memory of a block.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace gradloom::cuda {

// Array number kArray of a kernel, with kCount elements, uninitialized. The same arguments return the same memory.
template <int kArray, typename T, int kCount>
GRADLOOM_DEVICE T* Shared() {
  GRADLOOM_SHARED(memory, sizeof(T) * kCount);
  return reinterpret_cast<T*>(memory);
}

}  // namespace gradloom::cuda
