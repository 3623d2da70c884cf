// Fuses the gradients of activations into those of batch normalizations.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// For CUDA, where the gradient of a ReLU or a Clip (ReLU6) in front of a normalization's gradient is three passes over memory: a
// BatchNormTrainGrad whose incoming gradient is masked in this way becomes gradloom.MaskedBatchNormGrad.
// - If nothing else reads the masked gradient, and the activation directly follows the normalization, the mask is computed again from the
//   normalization's operand.
// - Otherwise, as behind a residual sum, the mask is read from the ReLU's result, and the masked gradient is written in the pass that sums
//   it over each channel. A sum of two gradients in front of the mask is part of that pass.
// Numbers are computed and rounded as before. After split_batch_norm; normalizations whose sums are those of several devices stay as they
// are.
void FuseNormMasks(GraphBuilder& builder);

}  // namespace gradloom
