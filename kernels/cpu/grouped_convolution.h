// Convolutions in groups for which a library has nothing with vectors: where the channels of a group are no whole vectors.
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Gives the operands of a plain Conv, ConvTranspose, ConvGradInput or ConvGradWeight the layouts in which a kernel of ours serves it: the
// channels of x and y innermost. False: none does.
bool PrefersGroupedConvolution(KernelCall& call);

}  // namespace gradloom
