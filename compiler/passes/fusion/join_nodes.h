// Joins nodes that do the same to different values into one node, for one launch.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

// Nodes for which `kind_of` returns the same text are joined, in their order, as long as `fits` returns true for those that have been
// joined and the next one, given by their positions. The node that `join` makes of them takes the place of the last one. The caller must
// know that no node in between reads their results.
void JoinNodes(Graph& graph, const std::function<std::optional<std::string>(const Node&)>& kind_of,
               const std::function<bool(const std::vector<int>& joined, int next)>& fits,
               const std::function<Node(const std::vector<int>&)>& join);

}  // namespace gradloom
