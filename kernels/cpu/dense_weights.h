// The weights' gradient of dense convolutions: where there is AVX2 and no AVX-512 oneDNN computes it at half the machine's rate, and with
// many weights for what is read it has no parts that threads could have each for itself (convolution_weights.h).
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Whether cpu.DenseConvGradWeight serves a ConvGradWeight with the channels of x and y innermost, whatever the layout of dw.
bool ServesDenseWeights(const KernelCall& call);

}  // namespace gradloom
