// What values are computed from.
#pragma once

#include <span>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

struct Dependencies {
  // Finds everything that the values `of` depend on. The graph's nodes must be in an order of execution.
  Dependencies(const Graph& graph, std::span<const ValueId> of);

  bool on(ValueId id) const { return values[static_cast<size_t>(id)]; }

  std::vector<bool> values;  // by ValueId; `of` themselves included
  std::vector<bool> nodes;   // by position in graph.nodes
};

}  // namespace gradloom
