// The order in which nodes run on one stream.
#pragma once

#include "compiler/graph/graph.h"

namespace gradloom {

// Keeps the given order, but moves each node of the update phase up to the first place at which its
// operands are there and every other reader of the state that it replaces has run: its gradient dies
// there instead of at the end of the step, and the update is still in place.
void OrderNodes(Graph& graph);

}  // namespace gradloom
