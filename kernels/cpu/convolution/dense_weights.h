// The weight gradient of dense convolutions. With AVX2 and without AVX-512, oneDNN computes it at half the machine's speed; and if there
// are many weights for little data, it has no independent parts for threads (convolution_weights.h).
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Whether cpu.DenseConvGradWeight serves a ConvGradWeight with channels-last x and y, in any layout of dw.
bool ServesDenseWeights(const KernelCall& call);

}  // namespace gradloom
