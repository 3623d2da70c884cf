// The gradient of a convolution's weights by oneDNN, in parts: sums over the batch whose order depends only on the shapes.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cpu/cpu_kernels.h"

namespace gradloom {

// For a ConvGradWeight in float32 or bfloat16. Throws dnnl::error.
std::unique_ptr<Kernel> MakeConvolutionWeights(const KernelCall& call);
int64_t ConvolutionWeightsScratch(const KernelCall& call);

}  // namespace gradloom
