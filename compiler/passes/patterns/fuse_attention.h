// Fuses the operators that exporters write for attention into one Attention.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

struct AttentionOptions {
  // Also fuse masks that depend on a parameter, if each head has its own: a bias by the distance of keys.
  bool trained_masks = false;
  // Fuse only causal attention with at least this many keys; the second number applies if probabilities are dropped. 0: fuse any.
  int64_t fewest_causal = 0, fewest_causal_dropped = 0;
};

// Replaces Softmax(scale * Q K^T + mask) V over float32 operands of rank 4, [batch, heads, length, size], by one Attention, whose kernels
// never hold all scores. The fused part includes a chain of scalings and transpositions before the products, an added or selected mask, and
// the guard that turns rows of NaN into zeros. If Q, K, V and the result are reshaped from and to [batch, length, heads * size], the
// Attention takes them in that form. A mask that hides later positions becomes is_causal. A Dropout of the probabilities
// becomes part of the Attention, an AttentionDropout that draws the same numbers. `parameters`: the trained ones.
//
// Not fused: probabilities with another reader (attention that is an output), and what the options exclude. Rows whose keys are all hidden
// by -inf give 0, as ONNX's Attention says, and not NaN; with cuDNN some mean of the values.
void FuseAttention(GraphBuilder& builder, const std::vector<ValueId>& parameters, const AttentionOptions& options);

}  // namespace gradloom
