// Numbers that a kernel's attributes bring with them, in memory of the device.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/cuda/check.h"

namespace gradloom::cuda {

// A copy of the list in memory of the current device, for as long as somebody has it. For kernels that are being made; no stream of the
// device has to wait for it.
template <typename T>
std::shared_ptr<const T> OnDevice(const std::vector<T>& list) {
  void* memory = nullptr;
  const size_t bytes = list.size() * sizeof(T);
  GRADLOOM_CUDA(cudaMalloc(&memory, std::max<size_t>(bytes, 1)));
  std::shared_ptr<const T> table(static_cast<const T*>(memory), [](const T* p) { cudaFree(const_cast<T*>(p)); });
  if (bytes > 0) GRADLOOM_CUDA(cudaMemcpy(memory, list.data(), bytes, cudaMemcpyHostToDevice));
  // Memory that is not pinned may have been taken and still be under way.
  GRADLOOM_CUDA(cudaStreamSynchronize(nullptr));
  return table;
}

}  // namespace gradloom::cuda
