// Makes one Attention of the operators that exporters write for it.
#pragma once

#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

struct AttentionOptions {
  // A Dropout of the probabilities becomes part of it, an AttentionDropout that draws the same numbers.
  bool dropout = false;
  // Masks that depend on a parameter are fused, too, where each head has its own: a bias by the keys' distance.
  bool trained_masks = false;
};

// Replaces Softmax(scale * Q K^T + mask) V over float32 operands of rank 4, [batch, heads, length, size], by one Attention, whose kernels
// never hold all scores: a chain of scalings and transpositions before the products, an added or selected mask, and the guard that
// turns rows of NaN into zeros are part of it. Where Q, K, V and the result are made from and into [batch, length, heads * size], the
// Attention takes them so. A mask that hides what comes later becomes is_causal. `parameters`: what is trained.
//
// Left alone: probabilities that anything else reads (attention that is an output), and what the options leave. Rows whose keys are all
// hidden by -inf give 0, as ONNX's Attention says, and not NaN; with cuDNN some mean of the values.
void FuseAttention(GraphBuilder& builder, const std::vector<ValueId>& parameters, const AttentionOptions& options);

}  // namespace gradloom
