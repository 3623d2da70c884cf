// The catalog rows and the kernels of the CUDA library correspond one to one, and names follow one rule.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/cuda/cuda_kernel.h"

namespace gradloom {
namespace {

TEST(CudaRows, RowsAndKernelsCorrespond) {
  std::set<std::string> rows, kernels;
  for (const KernelRow* row : KernelRows(DeviceKind::kCuda)) rows.emplace(row->name);
  for (const cuda::CudaKernel* kernel : cuda::AllCudaKernels()) kernels.emplace(kernel->row);
  EXPECT_EQ(rows, kernels);
}

// The operators that run on the CPU but not on a GPU.
TEST(CudaRows, CoverTheOperatorsOfTheCpu) {
  const std::set<std::string> missing = {
      // Constants no longer exist when a plan is made.
      ".Constant",
      // They become Identities after differentiation.
      "gradloom.MaskGradient",
      "gradloom.StopGradient",
      // Dropped once layers are fused.
      "gradloom.StageBoundary",
  };
  std::set<std::string> cpu, cuda;
  for (const KernelRow* row : KernelRows(DeviceKind::kCpu)) cpu.insert(std::string(row->domain) + "." + std::string(row->op));
  for (const KernelRow* row : KernelRows(DeviceKind::kCuda)) cuda.insert(std::string(row->domain) + "." + std::string(row->op));
  std::set<std::string> found;
  for (const std::string& op : cpu) {
    if (!cuda.contains(op)) found.insert(op);
  }
  EXPECT_EQ(found, missing);
}

}  // namespace
}  // namespace gradloom
