// Finds softplus and the logarithm of a sigmoid, however they are written.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Replaces
// - log(sigmoid(x)) by -softplus(-x): PyTorch's exporters write logsigmoid so, also inside binary_cross_entropy_with_logits,
// - log(1 - sigmoid(x)) by -softplus(x): the other half of it in files of the TorchScript exporter, and of binary_cross_entropy,
// - log(1 + exp(x)) by softplus(x): softplus as it is written by hand,
// - log(exp(x) + exp(y)) by max(x, y) + softplus(-|x - y|): logaddexp.
// As they are written, 1 - sigmoid(x) is 0 from x = 17 on, sigmoid(x) is 0 below -104, and exp(x) is infinite from 89 on. The loss would
// then be infinite, or NaN where it is multiplied by a target of 0, although that of the exported module is finite.
void FuseSoftplus(GraphBuilder& builder);

}  // namespace gradloom
