#pragma once

#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/cuda_kernel.h"

namespace gradloom::cuda {

// The kernel of ours, among these, that serves a call for which cuDNN has no algorithm; the library's notes say so, and why. Its row is the
// one that follows cuDNN's in the catalog and takes all calls that cuDNN's row takes, with no more scratch memory.
std::unique_ptr<Kernel> StandInForDnn(std::span<const CudaKernel> kernels, const KernelCall& call, const KernelSite& site,
                                      const std::string& why);

}  // namespace gradloom::cuda
