// Lets the gradient of attention use what the forward pass computed.
#pragma once

#include "compiler/graph/graph.h"
#include "kernels/catalog/kernel.h"

namespace gradloom {

// By default the gradient of attention repeats the forward pass for the softmax statistics of its queries. If the kernels that serve the
// forward operator and the gradient can return and use one number per query instead, its log-sum-exp, the operator becomes
// gradloom.AttentionTraining, and the gradient gets Y and the log-sum-exps. No node gets kernels of another kind by this.
void KeepLogSums(Graph& graph, DeviceKind device, int threads);

}  // namespace gradloom
