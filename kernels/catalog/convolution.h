// The operands and windows of a call of the convolution family.
#pragma once

#include "kernels/catalog/kernel.h"
#include "runtime/base/windows.h"

namespace gradloom {

// y = x * w: the operands of Conv, ConvTranspose, ConvGradInput, ConvGradWeight by their role in the forward convolution.
struct ConvolutionOperands {
  const OperandType *x, *w, *y;
};
ConvolutionOperands ConvolutionOperandsOf(const KernelCall& call);

// The windows of the forward convolution. Throws Error(kAttr), Error(kShape).
Windows WindowsOfConvolution(const KernelCall& call);

}  // namespace gradloom
