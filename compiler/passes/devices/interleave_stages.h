// The order in which the devices of a pipeline compute its micro-batches.
#pragma once

#include "compiler/graph/graph.h"
#include "compiler/passes/recipe.h"

namespace gradloom {

// Puts the nodes of a replica, whose micro-batches JoinMicroBatches has joined, in the order "one forward, one backward" (PipeDream-Flush:
// Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, 2021). Stage s of S begins with the forward pass of S - s
// micro-batches. Then it alternates between the backward pass of one and the forward pass of the next, so it keeps the activations of at
// most S - s micro-batches. What all micro-batches have in common follows the last of its operands. Nodes of different stages are listed as
// they begin by the cost model, so that a stage sends and receives in the order in which values become ready. A stage that waits for what
// another one computes only later in its own order, such as a sum over the whole batch within the forward pass, has that computed at once.
// All-reduces keep their order, which is that of other replicas.
void InterleaveStages(Graph& graph, int stages, const Recipe& recipe);

}  // namespace gradloom
