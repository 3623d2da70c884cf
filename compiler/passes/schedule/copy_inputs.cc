#include "compiler/passes/schedule/copy_inputs.h"

#include <map>
#include <utility>
#include <vector>

#include "compiler/passes/memory/place_state.h"
#include "compiler/passes/rewrite_nodes.h"

namespace gradloom {

void CopyInputs(Graph& graph, const InputCopies& copies) {
  std::set<ValueId> read;
  for (const Node& node : graph.nodes) ForEachUse(node, [&](ValueId id) { read.insert(id); });
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  std::map<ValueId, ValueId> copied;
  for (ValueId id : FeedsOf(graph)) {
    if (!read.contains(id) || !(copies.all || copies.feeds.contains(id))) continue;
    const Value feed = graph.value(id);
    const ValueId copy = graph.AddValue(feed.name + "/copied", feed.dtype, feed.shape, Role::kActivation);
    graph.AddNode({.op = "Identity", .inputs = {id}, .outputs = {copy}, .phase = Phase::kCopy, .origin = feed.name});
    copied.emplace(id, copy);
  }
  for (Node& node : nodes) {
    ReplaceIds(copied, node.inputs);
    graph.nodes.push_back(std::move(node));
  }
}

}  // namespace gradloom
