// Makes groups of pointwise operators one operator, so that what is between them never reaches memory.
#pragma once

#include "compiler/graph/graph.h"

namespace gradloom {

// Replaces chains and trees of pointwise nodes over float32 and truth values by gradloom.Fused. Runs after
// differentiation, on nodes in the order in which they will run.
//
// The members of a group give results of one shape and belong to one phase. A group is emitted in the place
// of its last member; it takes no more members once another node has read one of its values, so no value is
// made later than it is read. Values that only members read disappear.
void FusePointwise(Graph& graph);

// Whether a node can be a member of a group.
bool CanFuse(const Graph& graph, const Node& node);

}  // namespace gradloom
