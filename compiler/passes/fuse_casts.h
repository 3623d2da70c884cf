// Casts that other kernels do on their way.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// For CUDA: what mixed precision casts beside layer normalisations is read and written by these in 16 bits.
//   - A cast from 16 bits goes behind the views of its result that alone read it, where it meets what computes with it.
//   - LayerNormalization whose result is cast to 16 bits becomes gradloom.LayerNormCast, which writes that, too, or alone.
//   - LayerNormGrad takes the gradient in 16 bits, where a cast has widened it for this node alone.
// No bit changes: both compute in float32 and round where the cast did.
void FuseCasts(GraphBuilder& builder);

}  // namespace gradloom
