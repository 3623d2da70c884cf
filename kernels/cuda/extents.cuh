// Declarations shared by the family of operators whose extents depend on data.
#pragma once

#include <memory>

#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/operands.cuh"

namespace gradloom::cuda {

// Defined in suppression.cu.
std::unique_ptr<Kernel> MakeNonMaxSuppression(const KernelCall& call, const KernelSite& site);

}  // namespace gradloom::cuda
