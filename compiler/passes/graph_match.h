// What a pass asks of a graph when it looks for a few operators that hang together. Stale once the nodes change.
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

  // The position of the node that makes a value; -1: none does.
  int Producer(ValueId id) const { return id == kNoValue ? -1 : uses_.producer[static_cast<size_t>(id)]; }
  // A value without what changes nothing: Identity, and casts, expansions and reshapes to the type that is there.
  ValueId Plain(ValueId id) const;
  // The node that makes a value, apart from what changes nothing, if it is this operator (domain "": of ONNX's); else null.
  const Node* Made(ValueId id, std::string_view op, std::string_view domain = {}) const;
  // Whether a value is fetched or kept: it must be there whatever reads it.
  bool IsKept(ValueId id) const { return kept_[static_cast<size_t>(id)]; }
  size_t num_readers(ValueId id) const { return uses_.consumers[static_cast<size_t>(id)].size(); }
  // The one node that reads a value which is not kept; null where there is none, or several.
  const Node* OnlyReader(ValueId id) const;

 private:
  const Graph& graph_;
  const Uses uses_;
  std::vector<bool> kept_;  // by value
};

// For each position calls what appends, in place of the node there, nodes that make the same values; then removes what nothing reads any
// more.
void ReplaceNodes(Graph& graph, const std::map<int, std::function<void()>>& by_position);

// The same for what `find(node)` recognises: a std::optional of a match, whose `result` is the value that `emit(match)` makes by other
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
