// Declarations of normalization_more.cu for the list in normalization.cu.
#pragma once

#include "kernels/cuda/cuda_kernel.h"

namespace gradloom::cuda {

std::unique_ptr<Kernel> MakeGroupNorm(const KernelCall& call, const KernelSite& site);  // and InstanceNormalization
std::unique_ptr<Kernel> MakeGroupNormGrad(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeMeanVariance(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeLocalResponse(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeLocalResponseGrad(const KernelCall& call, const KernelSite& site);

}  // namespace gradloom::cuda
