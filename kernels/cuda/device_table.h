// Tables of constants that a kernel derives from attributes, in device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/cuda/check.h"

namespace gradloom::cuda {

// Copies `list` to memory of the current device, which is freed with the last reference. For use while kernels are made: no stream has to
// wait for the copy.
template <typename T>
std::shared_ptr<const T> OnDevice(const std::vector<T>& list) {
  void* memory = nullptr;
  const size_t bytes = list.size() * sizeof(T);
  GRADLOOM_CUDA(cudaMalloc(&memory, std::max<size_t>(bytes, 1)));
  std::shared_ptr<const T> table(static_cast<const T*>(memory), [](const T* p) { cudaFree(const_cast<T*>(p)); });
  if (bytes > 0) GRADLOOM_CUDA(cudaMemcpy(memory, list.data(), bytes, cudaMemcpyHostToDevice));
  // A copy from pageable memory may return before its transfer to the device has finished.
  GRADLOOM_CUDA(cudaStreamSynchronize(nullptr));
  return table;
}

}  // namespace gradloom::cuda
