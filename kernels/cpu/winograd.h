// Convolutions with 3 x 3 windows by Winograd's minimal filtering: 16 products for 4 points of y, where 36 are as they are written (S.
// Winograd, "Arithmetic complexity of computations", 1980; A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks",
// 2016).
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Gives the operands of a plain Conv, ConvGradInput or ConvGradWeight the layouts in which a Winograd kernel serves it; false: none does,
// or another is faster.
bool PrefersWinograd(KernelCall& call);

}  // namespace gradloom
