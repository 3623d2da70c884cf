// Convolutions with 3 x 3 windows by Winograd's minimal filtering: 16 products for 4 points of y instead of 36 (S. Winograd, "Arithmetic
// complexity of computations", 1980; A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks", 2016).
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Sets the operands of a plain Conv, ConvGradInput or ConvGradWeight to the layouts in which a Winograd kernel serves it. Returns false if
// none does, or another kernel is faster.
bool PrefersWinograd(KernelCall& call);

}  // namespace gradloom
