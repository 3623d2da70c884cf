// Kernels of our own that stand in for a library without an algorithm for a call.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/cuda_kernel.h"

namespace gradloom::cuda {

// Makes the kernel among `kernels` that replaces a library for a call for which it has no algorithm, and adds a note with the reason `why`.
// The catalog has that kernel's row after the library's; it takes all calls that the library's row takes and needs no more scratch memory.
std::unique_ptr<Kernel> MakeFallbackKernel(const std::string& library, std::span<const CudaKernel> kernels, const KernelCall& call,
                                           const KernelSite& site, const std::string& why);

}  // namespace gradloom::cuda
