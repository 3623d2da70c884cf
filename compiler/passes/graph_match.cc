#include "compiler/passes/graph_match.h"

#include <algorithm>
#include <utility>

#include "compiler/passes/schedule/node_order.h"
#include "compiler/passes/simplify.h"

namespace gradloom {
namespace {

std::vector<ValueId> FirstInputs(const Node& node, size_t count) {
  std::vector<ValueId> inputs(node.inputs.begin(), node.inputs.begin() + static_cast<std::ptrdiff_t>(std::min(count, node.inputs.size())));
  inputs.resize(count, kNoValue);
  return inputs;
}

// Whether a gradient has the attributes of the forward node, apart from those that only gradients have.
bool SameAttributes(const Attributes& forward, Attributes gradient) {
  for (const char* name : {"wanted", "deterministic"}) gradient.erase(name);
  return std::equal(forward.begin(), forward.end(), gradient.begin(), gradient.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && Attributes::ToString(a.second) == Attributes::ToString(b.second);
  });
}

}  // namespace

GraphMatch::GraphMatch(const Graph& graph) : graph_(graph), uses_(graph), kept_(static_cast<size_t>(graph.num_values())) {
  for (ValueId id : graph.outputs) kept_[static_cast<size_t>(id)] = true;
  for (const Value& value : graph.values()) {
    if (value.next_of != kNoValue) kept_[static_cast<size_t>(value.id)] = true;
    plain_.push_back(value.id);
  }
  for (const Node& node : graph.nodes) {
    const bool moves = node.op == "Identity" || node.op == "Cast" || node.op == "Expand" || node.op == "Reshape";
    // A result that nobody reads may be absent.
    const bool whole = moves && node.domain.empty() && node.outputs[0] != kNoValue;
    if (!whole || graph.type(node.inputs[0]) != graph.type(node.outputs[0])) continue;
    plain_[static_cast<size_t>(node.outputs[0])] = Plain(node.inputs[0]);
  }
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

std::vector<int> GraphMatch::NarrowingCasts(ValueId id) const {
  std::vector<ValueId> same = {id};
  std::vector<int> casts;
  for (size_t i = 0; i < same.size(); ++i) {
    for (int reader : uses_.consumers[static_cast<size_t>(same[i])]) {
      const Node& node = graph_.nodes[static_cast<size_t>(reader)];
      if (node.inputs[0] != same[i]) continue;
      if (IsView(node)) same.push_back(node.outputs[0]);
      if (node.op != "Cast" || !node.domain.empty()) continue;
      const DType to = graph_.value(node.outputs[0]).dtype;
      if (!Is16BitFloat(to)) continue;
      if (casts.empty() || to == graph_.value(graph_.nodes[static_cast<size_t>(casts[0])].outputs[0]).dtype) casts.push_back(reader);
    }
  }
  return casts;
}

ForwardNodes::ForwardNodes(Graph& graph) {
  for (Node& node : graph.nodes) {
    if (node.phase == Phase::kForward && !node.inputs.empty()) by_first_[node.inputs[0]].push_back(&node);
  }
}

Node* ForwardNodes::Of(const Node& gradient, size_t operands, const std::function<bool(const Node&)>& is_forward) const {
  const auto found = by_first_.find(gradient.inputs[0]);
  if (found == by_first_.end()) return nullptr;
  const std::vector<ValueId> inputs = FirstInputs(gradient, operands);
  const auto forward = std::find_if(found->second.begin(), found->second.end(), [&](const Node* node) {
    return is_forward(*node) && FirstInputs(*node, operands) == inputs && SameAttributes(node->attributes, gradient.attributes);
  });
  return forward == found->second.end() ? nullptr : *forward;
}

std::map<NodeId, NodeId> ReplaceNodes(Graph& graph, const std::map<int, std::function<void()>>& by_position) {
  std::map<NodeId, NodeId> replaced;
  if (by_position.empty()) return replaced;
  std::vector<Node> nodes = std::move(graph.nodes);
  graph.nodes.clear();
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    if (const auto found = by_position.find(i); found != by_position.end()) {
      const Node& node = nodes[static_cast<size_t>(i)];
      size_t made = graph.nodes.size();
      found->second();
      for (; made < graph.nodes.size(); ++made) {
        if (graph.nodes[made].device < 0) graph.nodes[made].device = node.device;
        replaced.emplace(graph.nodes[made].id, node.id);
      }
    } else {
      graph.nodes.push_back(std::move(nodes[static_cast<size_t>(i)]));
    }
  }
  RemoveDeadNodes(graph);
  return replaced;
}

}  // namespace gradloom
