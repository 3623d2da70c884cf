#pragma once

#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/cuda_kernel.h"

namespace gradloom::cuda {

// The kernel of ours, among these, that serves a call for which a library has no algorithm; the device's notes say so, and why. Its row is
// one that follows the library's in the catalog and takes all calls that the library's row takes, with no more scratch memory.
std::unique_ptr<Kernel> StandInFor(const std::string& library, std::span<const CudaKernel> kernels, const KernelCall& call,
                                   const KernelSite& site, const std::string& why);

}  // namespace gradloom::cuda
