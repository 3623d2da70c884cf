// The weight gradient of convolutions with few channels, where neither the channels of x nor those of y fill the vectors of oneDNN's
// kernels or of cpu.DenseConvGradWeight.
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Whether cpu.WindowConvGradWeight serves a ConvGradWeight with channels-last x and y, in any layout of dw.
bool ServesWindowWeights(const KernelCall& call);

}  // namespace gradloom
