#include "compiler/graph/dependencies.h"

#include <algorithm>

namespace gradloom {

Dependencies::Dependencies(const Graph& graph, std::span<const ValueId> of)
    : values(static_cast<size_t>(graph.num_values())), nodes(graph.nodes.size()) {
  for (const ValueId id : of) values[static_cast<size_t>(id)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    nodes[i] = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return id != kNoValue && on(id); });
    if (nodes[i]) ForEachUse(node, [&](ValueId id) { values[static_cast<size_t>(id)] = true; });
  }
}

}  // namespace gradloom
