// The weights' gradient of dense convolutions, which oneDNN computes at half the machine's rate where there is AVX2 and no AVX-512.
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Whether cpu.DenseConvGradWeight serves a ConvGradWeight with the channels of x and y innermost, whatever the layout of dw.
bool ServesDenseWeights(const KernelCall& call);

}  // namespace gradloom
