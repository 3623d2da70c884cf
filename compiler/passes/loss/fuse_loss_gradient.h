// Computes a cross entropy, and its gradient if there is one, in one pass over the scores.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Replaces gradloom.CrossEntropy (or CrossEntropyLogSum) and its gradient by one CrossEntropyTraining, if nothing else reads what the loss
// keeps for its gradient, and the upstream gradient does not depend on the loss itself. An upstream gradient divided by the sum of the
// weights gets this sum from the labels (LabelWeights). The nodes that compute the upstream gradient become part of the forward pass.
//
// A cross entropy without a gradient, as in an evaluation, writes no log-probabilities: it becomes a CrossEntropyLogSum.
void FuseLossGradient(GraphBuilder& builder);

}  // namespace gradloom
