// Runs one kernel of the CUDA device on host tensors.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/libraries.h"
#include "runtime/base/layout.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// A block of device memory.
class DeviceBytes {
 public:
  explicit DeviceBytes(int64_t bytes) { GRADLOOM_CUDA(cudaMalloc(&data_, static_cast<size_t>(std::max<int64_t>(bytes, 1)))); }
  ~DeviceBytes() { cudaFree(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  void* data() const { return data_; }
  void Write(const void* from, int64_t bytes) { GRADLOOM_CUDA(cudaMemcpy(data_, from, static_cast<size_t>(bytes), cudaMemcpyDefault)); }
  void Read(void* to, int64_t bytes) const { GRADLOOM_CUDA(cudaMemcpy(to, data_, static_cast<size_t>(bytes), cudaMemcpyDefault)); }

 private:
  void* data_ = nullptr;
};

// Never deleted: when the program's statics are, CUDA's libraries may no longer work.
inline cuda::Libraries& TheLibraries() {
  static auto& libraries = *new cuda::Libraries(0);
  return libraries;
}

// Runs a kernel on plain operands, which are converted to the layouts of the call, and returns its outputs. `alias` gives the operands that
// share memory, or is null. `fault_found` receives the fault that the kernel found in its data; if it is null, there must be none.
inline std::vector<Tensor> RunKernel(const KernelRow& row, const KernelCall& call, const std::vector<Tensor>& inputs,
                                     const Aliasing* alias = nullptr, cuda::DataFault* fault_found = nullptr) {
  DeviceBytes fault(sizeof(cuda::DataFault));
  const cuda::DataFault none;
  fault.Write(&none, sizeof none);
  const std::unique_ptr<Kernel> kernel = cuda::MakeCudaKernel(row, call, {7, static_cast<cuda::DataFault*>(fault.data()), &TheLibraries()});
  std::vector<std::unique_ptr<DeviceBytes>> memory;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const Tensor& input = inputs[k];
    if (!input.defined()) {
      in.push_back(nullptr);
      continue;
    }
    const OperandType& type = call.inputs[k];
    std::vector<std::byte> stored(static_cast<size_t>(type.bytes()));
    ToLayout(type.layout, type.shape, DTypeBytes(type.dtype), input.data(), stored.data());
    memory.push_back(std::make_unique<DeviceBytes>(type.bytes()));
    memory.back()->Write(stored.data(), type.bytes());
    in.push_back(memory.back()->data());
  }
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    if (!call.outputs[k].present()) {
      out.push_back(nullptr);
    } else if (alias != nullptr && alias->output == static_cast<int>(k)) {
      out.push_back(const_cast<void*>(in[static_cast<size_t>(alias->input)]));
    } else {
      memory.push_back(std::make_unique<DeviceBytes>(call.outputs[k].bytes()));
      out.push_back(memory.back()->data());
    }
  }
  // Not aligned better than in a plan.
  const DeviceBytes scratch(kAlignmentBytes + (row.scratch_bytes == nullptr ? 0 : row.scratch_bytes(call)));
  kernel->Run(in.data(), out.data(), static_cast<std::byte*>(scratch.data()) + kAlignmentBytes, nullptr);
  GRADLOOM_CUDA(cudaDeviceSynchronize());
  cuda::DataFault found;
  fault.Read(&found, sizeof found);
  if (fault_found != nullptr)
    *fault_found = found;
  else
    EXPECT_EQ(found.site, -1) << "the kernel reports index " << found.value << " of " << found.limit;
  std::vector<Tensor> outputs;
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    outputs.emplace_back();
    if (!call.outputs[k].present()) continue;
    const OperandType& type = call.outputs[k];
    outputs.back() = Tensor(type.dtype, type.shape);
    std::vector<std::byte> stored(static_cast<size_t>(type.bytes()));
    GRADLOOM_CUDA(cudaMemcpy(stored.data(), out[k], stored.size(), cudaMemcpyDefault));
    FromLayout(type.layout, type.shape, DTypeBytes(type.dtype), stored.data(), outputs.back().data());
    if (type.layout.blocks.empty()) continue;
    std::vector<std::byte> padded(stored.size());
    ToLayout(type.layout, type.shape, DTypeBytes(type.dtype), outputs.back().data(), padded.data());
    EXPECT_EQ(std::memcmp(stored.data(), padded.data(), stored.size()), 0) << "the padding of output " << k << " is not zero";
  }
  return outputs;
}

}  // namespace gradloom
