// Group normalisations that an exporter has written as reshapes around a normalisation by instances.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Makes one GroupNormalization of a reshape to [N, groups, rest], an InstanceNormalization with a scale of 1 and a bias of 0, the reshape
// back, and the product and the sum with a number for each channel, either of which may be missing: the only form before opset 18, in
// which PyTorch writes it up to opset 20. The result keeps its name.
void FuseGroupNorm(GraphBuilder& builder);

}  // namespace gradloom
