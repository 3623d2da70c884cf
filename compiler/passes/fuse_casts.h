// Fuses casts into other kernels.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// For CUDA: layer normalizations read and write in 16 bits what mixed precision casts next to them.
// - A cast from 16 bits moves behind the views of its result if only they read it. There it meets the operator that computes with it.
// - LayerNormalization whose result is cast to 16 bits becomes gradloom.LayerNormCast, which writes the cast result, in addition or only.
// - LayerNormGrad takes the gradient in 16 bits if a cast has widened it only for this node.
// No bit changes: the fused kernels compute in float32 and round where the cast did.
void FuseCasts(GraphBuilder& builder);

}  // namespace gradloom
