// How a scatter combines an update with what is there.
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

enum class ScatterReduction { kNone, kAdd, kMul, kMax, kMin };

// Attribute `reduction` of ScatterND and ScatterElements. Throws Error(kAttr) for any other word.
ScatterReduction ScatterReductionOf(const KernelCall& call);

}  // namespace gradloom
