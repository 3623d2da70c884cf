// The parts of the family of extents that data decides.
#pragma once

#include <memory>

#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/operands.cuh"

namespace gradloom::cuda {

// suppression.cu
std::unique_ptr<Kernel> MakeNonMaxSuppression(const KernelCall& call, const KernelSite& site);

}  // namespace gradloom::cuda
