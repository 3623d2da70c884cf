// Declarations shared by the family of data movement operators.
#pragma once

#include <memory>

#include "kernels/cuda/cuda_kernel.h"

namespace gradloom::cuda {

// Defined in pad.cu.
std::unique_ptr<Kernel> MakePad(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakePadGrad(const KernelCall& call, const KernelSite& site);

// Defined in generate.cu.
std::unique_ptr<Kernel> MakeConstantOfShape(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeEyeLike(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeRange(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeShape(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeSize(const KernelCall& call, const KernelSite& site);

// Defined in reorder.cu.
std::unique_ptr<Kernel> MakeReorder(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeCastIntoWords(const KernelCall& call, const KernelSite& site);

}  // namespace gradloom::cuda
