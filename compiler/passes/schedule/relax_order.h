// Sums whose order may differ from run to run.
#pragma once

#include "compiler/graph/graph.h"

namespace gradloom {

// Lets the libraries of a GPU compute gradients of convolutions and of attention in any order: sets the attribute "deterministic" = 0 of
// these nodes. Their results then differ by rounding errors from run to run, and so do weights. Everything else, including the forward
// pass, keeps its bits. Run it before the batch is divided over devices: replicate_data removes the attribute from a node that each device
// computes for itself, because replicas of a weight must stay equal.
void RelaxOrder(Graph& graph);

}  // namespace gradloom
