// Queries with which passes look for patterns of a few connected operators. Invalid once the nodes change.
#pragma once

#include <functional>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

class GraphMatch {
 public:
  explicit GraphMatch(const Graph& graph);

  // The position of the node that makes a value; -1 if none does.
  int Producer(ValueId id) const { return uses_.ProducerOf(id); }
  // The value behind nodes that change nothing: Identity, and casts, expansions and reshapes to the same type.
  ValueId Plain(ValueId id) const { return id == kNoValue ? id : plain_[static_cast<size_t>(id)]; }
  // The node that makes a value, looking through nodes that change nothing, if it is this operator (domain "": ONNX's); otherwise null.
  const Node* ProducedBy(ValueId id, std::string_view op, std::string_view domain = {}) const;
  // Whether a value is fetched or kept: it must exist whatever reads it.
  bool IsKept(ValueId id) const { return kept_[static_cast<size_t>(id)]; }
  const Uses& uses() const { return uses_; }
  size_t num_readers(ValueId id) const { return uses_.consumers[static_cast<size_t>(id)].size(); }
  // The only node that reads a value which is not kept; null if there is none, or several.
  const Node* OnlyReader(ValueId id) const;
  // The positions of the casts of a value, or of views of it, to the same 16-bit type, that of the first one.
  std::vector<int> NarrowingCasts(ValueId id) const;

 private:
  const Graph& graph_;
  const Uses uses_;
  std::vector<bool> kept_;      // by value
  std::vector<ValueId> plain_;  // by value
};

// Finds the forward nodes of gradient operators that take the forward operands and repeat the forward pass. Nodes may be changed in place
// while it exists, but not their first operand.
class ForwardNodes {
 public:
  explicit ForwardNodes(Graph& graph);

  // The first of the nodes for which `is_forward` returns true that has the gradient's first `operands` inputs (absent ones at the end may
  // be missing) and its attributes, apart from "wanted" and "deterministic", which only gradients have. Null if there is none.
  Node* Of(const Node& gradient, size_t operands, const std::function<bool(const Node&)>& is_forward) const;

 private:
  std::map<ValueId, std::vector<Node*>> by_first_;  // nodes of the forward phase, by their first operand
};

// Replaces the node at each position: calls the function, which appends nodes that make the same values, on the node's device unless they
// have one. Then removes dead nodes. Returns the ids of the appended nodes, each with that of the node that it replaces or helps to
// replace.
std::map<NodeId, NodeId> ReplaceNodes(Graph& graph, const std::map<int, std::function<void()>>& by_position);

// The same for each match that `find(node)` returns, as a std::optional. `result` of a match is the value that `emit(match)` makes by other
// nodes, in place of the node that made it.
template <typename Find, typename Emit>
void ReplaceMatches(Graph& graph, const GraphMatch& uses, const Find& find, const Emit& emit) {
  std::map<int, std::function<void()>> by_position;
  for (const Node& node : graph.nodes) {
    if (auto found = find(node)) by_position.emplace(uses.Producer(found->result), [&emit, match = *std::move(found)] { emit(match); });
  }
  ReplaceNodes(graph, by_position);
}

}  // namespace gradloom
