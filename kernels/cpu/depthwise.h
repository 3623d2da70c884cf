// The weights' gradient of convolutions with a filter for each channel, which oneDNN has for small windows alone.
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Gives the operands of a plain ConvGradWeight the layouts in which cpu.ConvGradWeight serves it; false: it does not.
bool PrefersDepthwise(KernelCall& call);

}  // namespace gradloom
