// Grouped convolutions for which oneDNN has no vectorized implementation, because the channels of a group do not fill whole vectors.
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Sets the operands of a plain Conv, ConvTranspose, ConvGradInput or ConvGradWeight to the layouts in which one of these kernels serves it:
// channels-last x and y. Returns false if none does.
bool PrefersGroupedConvolution(KernelCall& call);

}  // namespace gradloom
