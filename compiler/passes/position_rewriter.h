// The base of passes that look at each node by its position, and replace several nodes by others.
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "compiler/graph/builder.h"
#include "compiler/passes/graph_match.h"

namespace gradloom {

class PositionRewriter {
 protected:
  explicit PositionRewriter(GraphBuilder& builder) : b_(builder), graph_(builder.graph()) {}

  // Calls a method of the pass for the position of each node. What it puts into replaced_ is done afterwards, so positions and match_ are
  // valid until all nodes have been visited.
  template <typename Pass>
  void Visit(void (Pass::*visit)(int at)) {
    const GraphMatch match(graph_);
    match_ = &match;
    for (int at = 0; at < static_cast<int>(graph_.nodes.size()); ++at) (static_cast<Pass*>(this)->*visit)(at);
    match_ = nullptr;
    ReplaceNodes(graph_, std::exchange(replaced_, {}));
  }

  const Node& NodeAt(int at) const { return graph_.nodes[static_cast<size_t>(at)]; }

  void Remove(int at) {
    replaced_.emplace(at, [] {});
  }

  // Appends a node that takes its phase and origin from another one.
  void Append(Node node, const Node& like) {
    node.phase = like.phase;
    node.origin = like.origin;
    graph_.AddNode(std::move(node));
  }

  GraphBuilder& b_;
  Graph& graph_;
  const GraphMatch* match_ = nullptr;
  std::map<int, std::function<void()>> replaced_;  // by position: see ReplaceNodes
};

}  // namespace gradloom
