// Functions for passes over the bodies of gradloom.If and gradloom.Loop (compiler/ops/control_flow.cc).
#pragma once

#include <functional>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// Calls `f` on the bodies of the graph's nodes, inner bodies first.
void ForEachBody(Graph& graph, const std::function<void(Graph&)>& f);

// Makes small constants among the node's operands constants of its bodies, where arithmetic can be folded with them. Values that a loop
// carries are excluded, since they differ in each iteration.
void SinkConstants(const Graph& graph, Node& node);

// Removes what is not needed: outputs of the node (`wanted`: by value of the graph), nodes that only they need, and operands that no body
// reads.
void TrimBodies(Node& node, const std::vector<bool>& wanted);

// Brings every node with bodies into the form of a program: each output of a body is made by a node of its own; constants belong to the
// enclosing graph; a value that a loop carries has a place of its own, and is the next value of the one with which an iteration began.
void LowerBodies(Graph& graph);

}  // namespace gradloom
