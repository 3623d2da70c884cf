// Emulated kernels and generated code refuse words at addresses that are no multiples of their size, as a GPU does.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "tests/cuda/run_kernel.h"

namespace gradloom {
namespace {

// Runs the kernel of a call over zeros, whose first input begins `offset` bytes after an aligned address.
void RunAt(const KernelCall& call, int64_t offset) {
  const DeviceBytes fault(sizeof(cuda::DataFault));
  const KernelRow& row = *ChooseKernel(DeviceKind::kCuda, call);
  const auto kernel = cuda::MakeCudaKernel(row, call, {7, static_cast<cuda::DataFault*>(fault.data()), &TheLibraries()});
  std::vector<std::unique_ptr<DeviceBytes>> memory;
  const auto take = [&](const OperandType& operand) {
    const std::vector<std::byte> zeros(static_cast<size_t>(operand.bytes() + kAlignmentBytes));
    memory.push_back(std::make_unique<DeviceBytes>(static_cast<int64_t>(zeros.size())));
    memory.back()->Write(zeros.data(), static_cast<int64_t>(zeros.size()));
    return static_cast<std::byte*>(memory.back()->data());
  };
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const OperandType& input : call.inputs) in.push_back(take(input) + (in.empty() ? offset : 0));
  for (const OperandType& output : call.outputs) out.push_back(take(output));
  kernel->Run(in.data(), out.data(), nullptr, nullptr);
  GRADLOOM_CUDA(cudaDeviceSynchronize());
}

void ExpectRefused(const KernelCall& call) {
  RunAt(call, 0);
  EXPECT_DEATH(RunAt(call, 4), "misaligned address");
}

TEST(AlignmentDeathTest, OfWordsInKernels) {
  const OperandType x{DType::kFloat32, {2, 64}, {}}, row{DType::kFloat32, {64}, {}};
  ExpectRefused({.op = "LayerNormalization", .domain = "", .attributes = {}, .inputs = {x, row, row}, .outputs = {x}});
}

TEST(AlignmentDeathTest, OfWordsInGeneratedCode) {
  const OperandType x{DType::kFloat32, {2, 64}, {}};
  ExpectRefused({.op = "Add", .domain = "", .attributes = {}, .inputs = {x, x}, .outputs = {x}});
}

}  // namespace
}  // namespace gradloom
