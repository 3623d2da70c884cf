// How a scatter combines an update with the current value.
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

enum class ScatterReduction { kNone, kAdd, kMul, kMax, kMin };

// The attribute `reduction` of ScatterND and ScatterElements. Throws Error(kAttr) for any other value.
ScatterReduction ScatterReductionOf(const KernelCall& call);

}  // namespace gradloom
