// Nodes that check the data of a batch and may refuse it: an index outside an axis, an invalid label. The step then fails and must leave
// all state unchanged, so state is written after these nodes.
#pragma once

#include <vector>

#include "compiler/passes/schedule/node_order.h"

namespace gradloom {

// Whether the node makes the next value of a state.
bool WritesState(const Graph& graph, const Node& node);

// The positions of nodes that may be the first to refuse, ascending. Data that has passed one check passes every later node with the same
// check, as in the gradient of a Gather. `order`: decides which nodes are later; null: the list.
std::vector<int> RefusingNodes(const Graph& graph, const NodeOrder* order = nullptr);

// By value id, what must not be computed again, because the batch could then be refused by the copy: values whose elements are checked, and
// results of nodes whose checks no other one implies.
std::vector<bool> CheckedValues(const Graph& graph);

// The position of the first collective after all of `refusing`, from which each device learns whether another refuses the batch; -1: there
// is none, or nothing refuses. That is a sum over the devices that share the batch or, without any, a value that another device sends: a
// device with one part of a model that sends a value to the next part learns nothing of the other replicas.
int FirstCollectiveAfter(const Graph& graph, const std::vector<int>& refusing);

}  // namespace gradloom
