// Finds GELU by its tanh form, and its derivative, however they are written.
#pragma once

#include <optional>
#include <set>

#include "compiler/graph/graph.h"

namespace gradloom {

// Makes the operators that exporters write for it one Gelu. What a graph computes of one value, element by element, is known by the numbers
// that it gives for many: two expressions that agree there to five digits are one function, and GELU's forms differ in the fourth.
void FuseGelu(Graph& graph);

struct GeluGradient {
  ValueId value = kNoValue;  // gradient times the derivative of GELU
  std::set<int> nodes;       // positions of those that make it of the gradient
};

// What multiplies `gradient` by the derivative at `x`, both as long as each other: operators of 16 bits give two digits of it. Nothing
// where something else reads the gradient, or what was made of it on the way.
std::optional<GeluGradient> FindGeluGradient(const Graph& graph, const Uses& uses, ValueId x, ValueId gradient);

}  // namespace gradloom
