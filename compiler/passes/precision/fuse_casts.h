// Fuses casts into other kernels.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Mixed precision casts next to the operators that compute in another type.
// - A cast from 16 bits moves behind the views of its result if only they read it. A cast to 16 bits moves before the view that it alone
//   reads. There they meet the operators with which they can be fused.
// - The cross entropy of 16-bit scores reads them as they are, keeps one number per row for its gradient instead of all log-probabilities
//   in float32, and writes the gradient in 16 bits.
// With `norms`, for CUDA, layer normalizations read and write in 16 bits what is cast next to them:
// - LayerNormalization whose result is cast to 16 bits becomes gradloom.LayerNormCast, which writes the cast result, in addition or only.
// - LayerNormGrad takes the gradient in 16 bits if a cast has widened it only for this node.
// The fused kernels compute in float32 and round where the cast did. Only log-probabilities change, by a rounding in float32.
void FuseCasts(GraphBuilder& builder, bool norms);

}  // namespace gradloom
