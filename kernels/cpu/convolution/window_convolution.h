// Forward convolutions for which oneDNN has no optimized implementation with channels innermost, such as those with more padding than its
// tiles have points.
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Whether our kernel serves a plain Conv channels-last. If so, sets the layouts that it needs.
bool PrefersWindowConvolution(KernelCall& call);

}  // namespace gradloom
