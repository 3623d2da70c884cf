// Functions for passes that replace nodes or values.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// Replaces each of `ids` that is a key of `replaced` by its value.
inline void ReplaceIds(const std::map<ValueId, ValueId>& replaced, std::vector<ValueId>& ids) {
  for (ValueId& id : ids) {
    if (const auto found = replaced.find(id); found != replaced.end()) id = found->second;
  }
}

// Calls rewrite(node) for every node; the nodes that it appends replace the node. If it returns false, the node stays. Appended nodes get
// the node's origin, phase, device and micro-batch.
template <typename Rewrite>
void RewriteNodes(GraphBuilder& b, Rewrite rewrite) {
  Graph& graph = b.graph();
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  for (Node& node : nodes) {
    b.set_origin(node.origin);
    b.set_phase(node.phase);
    const size_t before = graph.nodes.size();
    if (!rewrite(node)) graph.nodes.push_back(std::move(node));
    for (size_t i = before; i < graph.nodes.size(); ++i) {
      graph.nodes[i].device = node.device;
      graph.nodes[i].micro_batch = node.micro_batch;
    }
  }
  b.set_origin("");
  b.set_phase(Phase::kForward);
}

}  // namespace gradloom
