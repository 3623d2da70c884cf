// Nodes that look at the numbers of a batch and may find what they refuse: an index outside an axis, a label that is no class. The step
// fails then, and what lives between steps has to be as it was: it is written behind them.
#pragma once

#include <vector>

#include "compiler/passes/node_order.h"

namespace gradloom {

// Whether the node makes the next value of what lives between steps.
bool WritesState(const Graph& graph, const Node& node);

// The positions of those that may be the first to find it, ascending: what one has passed passes every node behind it that looks for the
// same, as the gradient of a Gather does. `order`: which are behind; null: by the list.
std::vector<int> RefusingNodes(const Graph& graph, const NodeOrder* order = nullptr);

// The position of the first meeting of devices behind all of `refusing`, by which each device knows whether another refuses the batch; -1:
// there is none, or nothing refuses.
int FirstMeetingBehind(const Graph& graph, const std::vector<int>& refusing);

}  // namespace gradloom
