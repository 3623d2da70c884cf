// Updates that read gradients of 16 bits.
#pragma once

#include "compiler/graph/graph.h"

namespace gradloom {

// Takes the cast to float32 away from a 16-bit gradient that updates alone read: they widen it element by element, to the same bits, and no
// float32 gradient is stored. For devices whose update kernels do that (the CPU's).
void NarrowGradients(Graph& graph);

}  // namespace gradloom
