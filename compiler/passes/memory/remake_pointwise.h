// Recomputes cheap activations where the backward pass reads them, so that they are never stored.
#pragma once

#include <map>

#include "compiler/graph/graph.h"

namespace gradloom {

// A value that pointwise operators make in the forward pass, and that only pointwise operators read in the backward pass, is recomputed
// there if that takes few operators from values that are kept in any case. A group of fused operators then reads those values and holds the
// rest in its tiles. Except for far smaller values, and for the 16-bit original in place of what it is cast to, nothing is kept that was
// not kept before. No bit changes: pointwise operators give the same bits each time, fused or not. Run it after simplification, which would
// merge the duplicates, and before fusion.
void RemakePointwise(Graph& graph);

// Appends a copy of a forward node for the backward pass. `own`: the values that the copy reads in place of the node's inputs, where these
// differ; gets the copy's outputs by those of the node.
void RemakeNode(Graph& graph, const Node& node, std::map<ValueId, ValueId>& own);

}  // namespace gradloom
