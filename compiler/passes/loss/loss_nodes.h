// Which nodes belong to the loss of an entry.
#pragma once

#include <set>

#include "compiler/graph/graph.h"

namespace gradloom {

// Those of the loss are made after all of the model, and until the gradients are added, other nodes that are made are theirs, too: except
// for those that replace nodes of the model.
class LossNodes {
 public:
  // There is no loss.
  LossNodes() = default;
  // The loss begins with the next node of the graph, whose id this is.
  explicit LossNodes(NodeId first) : first_(first) {}

  bool contains(NodeId node) const { return first_ >= 0 && node >= first_ && !of_model_.contains(node); }

  // `made` is new and replaces `before`: it belongs to what that belonged to.
  void Replace(NodeId before, NodeId made) {
    if (!contains(before)) of_model_.insert(made);
  }

 private:
  NodeId first_ = -1;
  std::set<NodeId> of_model_;
};

}  // namespace gradloom
