// The weight gradient of depthwise convolutions, which oneDNN implements only for small windows in one and two dimensions.
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Sets the operands of a plain ConvGradWeight to the layouts in which cpu.ConvGradWeight serves it. Returns false if it does not serve the
// call.
bool PrefersDepthwise(KernelCall& call);

}  // namespace gradloom
