// Fuses groups of pointwise operators into one operator, so that intermediate values never reach memory.
#pragma once

#include "compiler/graph/graph.h"

namespace gradloom {

// Replaces chains and trees of pointwise nodes over float32 and bool by gradloom.Fused. Runs after differentiation, on nodes in the order
// in which they will run.
//
// The members of a group have results of one shape and belong to one phase. Members of different micro-batches of a pipeline are not
// joined: the gradients of each would be kept until the last one is added. A group is emitted at the position of its last member. It takes
// no more members once another node has read one of its values, so no value is made later than it is read. Values that only members read
// disappear.
void FusePointwise(Graph& graph);

// Whether a node can be a member of a group.
bool CanFuse(const Graph& graph, const Node& node);

}  // namespace gradloom
