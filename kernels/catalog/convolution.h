// What a call of the convolution family convolves.
#pragma once

#include "kernels/catalog/kernel.h"
#include "runtime/base/windows.h"

namespace gradloom {

// y = x * w: the operands of Conv, ConvTranspose, ConvGradInput, ConvGradWeight by what they are in the forward convolution.
struct ConvolutionOperands {
  const OperandType *x, *w, *y;
};
ConvolutionOperands ConvolutionOperandsOf(const KernelCall& call);

// Of the forward convolution. Throws Error(kAttr), Error(kShape).
Windows WindowsOfConvolution(const KernelCall& call);

}  // namespace gradloom
