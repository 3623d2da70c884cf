// The kernels of the CPU device: for each a catalog row and the function that prepares it.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "kernels/catalog/kernel.h"

namespace gradloom {

struct CpuKernel {
  KernelRow row;
  // Does all work that depends only on the call, so that Run only computes. The row must not reject the call. Throws Error(kResource).
  std::unique_ptr<Kernel> (*make)(const KernelCall& call) = nullptr;
};

// All kernels except the reference kernels, in the order in which they are tried.
std::span<const CpuKernel* const> CpuKernels();

// Prepares the kernel of a CPU row for a call, including reference kernels. Run allocates no memory except for small tables and in rare
// cases (reference kernels may allocate), and uses up to call.threads threads. Throws Error(kPlan) if the row rejects the call or is not a
// CPU row.
std::unique_ptr<Kernel> MakeCpuKernel(const KernelRow& row, const KernelCall& call);

// "avx512", "avx2" or "baseline": the instruction set that the kernels' loops use on this machine. ONEDNN_MAX_CPU_ISA in the environment,
// as of the first call, may forbid wider ones.
std::string_view UsedInstructionSet();

// "amx" or "avx512_bf16": the instructions by which products of bfloat16 are faster than those of float32 on this machine; "": none.
std::string_view FastBfloat16Instructions();

}  // namespace gradloom
