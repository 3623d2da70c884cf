// What passes do to the bodies of gradloom.If and gradloom.Loop (compiler/ops/control_flow.cc).
#pragma once

#include <functional>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// Calls `f` on the bodies of the graph's nodes, those within them first.
void ForEachBody(Graph& graph, const std::function<void(Graph&)>& f);

// Small constants among the operands of the node become constants of its bodies, where arithmetic can be folded with them; but what a loop
// carries is another value in each round.
void SinkConstants(const Graph& graph, Node& node);

// Takes from the node what nobody wants: outputs (`wanted`: by value of the graph), what only they need, and operands that no body reads.
void TrimBodies(Node& node, const std::vector<bool>& wanted);

// Brings every node with bodies into the form that a program has: each output of a body is made by a node of its own, constants are the
// graph's around it, and what a loop carries begins in a place of its own and is the next value of what a round began with.
void LowerBodies(Graph& graph);

}  // namespace gradloom
