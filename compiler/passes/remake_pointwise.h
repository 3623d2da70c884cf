// Cheap activations are made again where the backward pass reads them, and never stored.
#pragma once

#include <map>

#include "compiler/graph/graph.h"

namespace gradloom {

// A value that pointwise operators make in the forward pass, and that pointwise operators alone read in the backward pass, is made again
// there if that takes few operators from values that are kept in any case: a group of fused operators then reads those and holds the
// rest in its tiles. Nothing is kept that was not kept before but what is far smaller, and no bit changes: pointwise operators give the
// same bits each time, fused or not. After simplification, which would make one of what is there twice; before fusion.
void RemakePointwise(Graph& graph);

// A copy of a forward node for the backward pass, appended to the graph. `own`: what the copy reads in place of the node's inputs, where
// that is another value; gets the copy's outputs, by those of the node.
void RemakeNode(Graph& graph, const Node& node, std::map<ValueId, ValueId>& own);

}  // namespace gradloom
