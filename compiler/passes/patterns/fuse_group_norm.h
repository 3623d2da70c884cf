// Fuses group normalizations that an exporter has written as reshapes around an instance normalization.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Replaces a reshape to [N, groups, rest], an InstanceNormalization with a scale of 1 and a bias of 0, the reshape back, and the product
// and the sum with a number for each channel (either may be missing) by one GroupNormalization. This is the only form before opset 18;
// PyTorch writes it up to opset 20. The result keeps its name.
void FuseGroupNorm(GraphBuilder& builder);

}  // namespace gradloom
