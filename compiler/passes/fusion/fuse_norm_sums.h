// Fuses the sums of residual branches into layer normalizations.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// For CUDA, where a sum beside a normalization is another pass over memory, after fuse_casts:
// - A LayerNormCast of a sum becomes gradloom.SumLayerNorm, if `forward`. That returns the sum as well if something else reads it. Under a
//   memory limit, the sum is better kept alone, so that the normalization can be recomputed from it. If its operand in float32 is the
//   result of another normalization that nothing else reads in float32, and what that normalizes is kept anyway, it normalizes that again
//   instead.
// - A LayerNormGrad whose incoming gradient is a sum that nothing else reads, whose result is added to another gradient, or whose result is
//   cast to 16 bits, becomes gradloom.SumLayerNormGrad.
// Numbers are added and rounded as before. Sums of what pointwise operators compute are left to fuse_pointwise.
void FuseNormSums(GraphBuilder& builder, bool forward);

}  // namespace gradloom
