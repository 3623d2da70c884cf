// Lets updates read 16-bit gradients.
#pragma once

#include "compiler/graph/graph.h"

namespace gradloom {

// Removes the cast to float32 of a 16-bit gradient that only updates read. They widen it element by element, to the same bits, and no
// float32 gradient is stored.
void NarrowGradients(Graph& graph);

}  // namespace gradloom
