// Memory that the threads of a block share.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace gradloom::cuda {

// Array `kArray` of a kernel: kCount elements, whose values are undefined at first. The same arguments give the same memory.
template <int kArray, typename T, int kCount>
GRADLOOM_DEVICE T* Shared() {
  GRADLOOM_SHARED(memory, sizeof(T) * kCount);
  return reinterpret_cast<T*>(memory);
}

}  // namespace gradloom::cuda
