// The order of gradients that do not depend on each other.
#pragma once

#include "compiler/graph/graph.h"

namespace gradloom {

// Of two neighbors in the backward pass that do not depend on each other, such as the gradients of a product's two operands, the second one
// comes first if neither then runs beside more bytes and one of them beside fewer: typically the gradient of the weight, if it is the last
// reader of the activation and not larger. Nodes that fusion takes stay where they are, so that it finds the same groups, and so do
// collectives and what sends of activations to other devices wait for. Run it after recomputed nodes are inserted, and before updates move
// to their gradients.
void OrderGradients(Graph& graph);

}  // namespace gradloom
