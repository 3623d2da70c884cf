// Finds GELU, and the derivative of its tanh form, however they are written.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "compiler/graph/graph.h"

namespace gradloom {

// Replaces the operators that exporters write for it by one Gelu. An elementwise expression of one value is recognized by its results for
// many numbers: two expressions that agree there to five digits are the same function, and GELU's forms differ in the fourth. Returns what
// ReplaceNodes returns.
std::map<NodeId, NodeId> FuseGelu(Graph& graph);

struct GeluGradient {
  ValueId value = kNoValue;  // gradient times the derivative of GELU
  std::set<int> nodes;       // positions of the nodes that compute it from the gradient
};

// Finds the expression that multiplies `gradient` by the derivative of the tanh form at `x`, which have the same number of elements;
// operators of 16 bits give only two digits of it. nullopt if something else reads the gradient, or an intermediate value.
std::optional<GeluGradient> FindGeluGradient(const Graph& graph, const Uses& uses, ValueId x, ValueId gradient);

}  // namespace gradloom
