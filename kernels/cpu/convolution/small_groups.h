// The gradient of a grouped convolution's weights where several groups share a vector: 4 or 8 channels per group on either side.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Whether a ConvGradWeight of x and dy with channels innermost and dw in any layout is served, whatever its present layouts. The caller
// checks types, ranks and groups.
bool ServesSmallGroups(const KernelCall& call);

std::unique_ptr<Kernel> MakeSmallGroups(const KernelCall& call);

int64_t SmallGroupsScratch(const KernelCall& call);

}  // namespace gradloom
