// Convolutions with a filter for each channel for which oneDNN has no vectorized implementation: with dilated windows, in three dimensions,
// and transposed.
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Sets the operands of a plain Conv, ConvTranspose or ConvGradInput to the layouts in which one of these kernels serves it best: channels
// innermost. Returns false if none does.
bool PrefersDepthwiseConvolution(KernelCall& call);

}  // namespace gradloom
