// The kernels of the CPU device: a catalog row each, and the function that prepares it.
#pragma once

#include <memory>
#include <span>

#include "kernels/catalog/kernel.h"

namespace gradloom {

struct CpuKernel {
  KernelRow row;
  // Everything that depends on the call alone is done here, so that Run only computes. The call is one
  // that the row does not reject. Throws Error(kResource).
  std::unique_ptr<Kernel> (*make)(const KernelCall& call) = nullptr;
};

// All but the reference kernels, in the order in which they are tried.
std::span<const CpuKernel* const> CpuKernels();

// Prepares the kernel of a CPU row for a call, reference kernels included. Run allocates nothing (reference
// kernels may), and uses up to call.threads threads. Throws Error(kPlan) where the row rejects the call
// or is no CPU row.
std::unique_ptr<Kernel> MakeCpuKernel(const KernelRow& row, const KernelCall& call);

}  // namespace gradloom
