// Declarations shared by the family of quantized operators.
#pragma once

#include <memory>

#include "kernels/cuda/cuda_kernel.h"

namespace gradloom::cuda {

// Defined in quantized_product.cu.
std::unique_ptr<Kernel> MakeConvInteger(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeQLinearConv(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeQLinearMatMul(const KernelCall& call, const KernelSite& site);

}  // namespace gradloom::cuda
