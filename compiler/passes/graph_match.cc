#include "compiler/passes/graph_match.h"

#include <utility>

#include "compiler/passes/simplify.h"

namespace gradloom {

GraphMatch::GraphMatch(const Graph& graph) : graph_(graph), uses_(graph), kept_(static_cast<size_t>(graph.num_values())) {
  for (ValueId id : graph.outputs) kept_[static_cast<size_t>(id)] = true;
  for (const Value& value : graph.values()) {
    if (value.next_of != kNoValue) kept_[static_cast<size_t>(value.id)] = true;
  }
}

ValueId GraphMatch::Plain(ValueId id) const {
  for (int at; (at = Producer(id)) >= 0;) {
    const Node& node = graph_.nodes[static_cast<size_t>(at)];
    const bool moves = node.op == "Identity" || node.op == "Cast" || node.op == "Expand" || node.op == "Reshape";
    if (!moves || !node.domain.empty() || graph_.type(node.inputs[0]) != graph_.type(id)) break;
    id = node.inputs[0];
  }
  return id;
}

const Node* GraphMatch::ProducedBy(ValueId id, std::string_view op, std::string_view domain) const {
  const int at = Producer(id == kNoValue ? id : Plain(id));
  if (at < 0) return nullptr;
  const Node& node = graph_.nodes[static_cast<size_t>(at)];
  return node.op == op && node.domain == domain ? &node : nullptr;
}

const Node* GraphMatch::OnlyReader(ValueId id) const {
  const std::vector<int>& readers = uses_.consumers[static_cast<size_t>(id)];
  return IsKept(id) || readers.size() != 1 ? nullptr : &graph_.nodes[static_cast<size_t>(readers[0])];
}

void ReplaceNodes(Graph& graph, const std::map<int, std::function<void()>>& by_position) {
  if (by_position.empty()) return;
  std::vector<Node> nodes = std::move(graph.nodes);
  graph.nodes.clear();
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    if (const auto found = by_position.find(i); found != by_position.end()) {
      found->second();
    } else {
      graph.nodes.push_back(std::move(nodes[static_cast<size_t>(i)]));
    }
  }
  RemoveDeadNodes(graph);
}

}  // namespace gradloom
