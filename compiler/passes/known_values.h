// Values that a graph computes from constants only.
#pragma once

#include <map>
#include <optional>

#include "compiler/graph/graph.h"
#include "compiler/passes/graph_match.h"

namespace gradloom {

class KnownValues {
 public:
  // Both must outlive this object, and the nodes must not change.
  KnownValues(const Graph& graph, const GraphMatch& match) : graph_(graph), match_(match) {}

  // The elements of a constant or of a value computed only from constants; null if they are not known, or too many. Valid as long as this
  // object.
  const Tensor* Of(ValueId id) const { return Of(id, 0); }

  // The number that all elements of a known value are.
  std::optional<double> Uniform(ValueId id) const;

 private:
  const Tensor* Of(ValueId id, int depth) const;

  const Graph& graph_;
  const GraphMatch& match_;
  mutable std::map<ValueId, Tensor> known_;  // undefined: not known
};

}  // namespace gradloom
