// Concatenates the gradients of parts of a tensor.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// If a tensor is read in parts (the steps of a sequence, the gates of a cell, the halves of rotary positions), its gradient is a sum of
// tensors of its size, each of zeros except for its part. The work grows with the square of their number. This pass replaces sums of two or
// more gradients of parts that do not overlap (slices of one axis, or rows by a constant number) by one Concat, with zeros between them.
// Other terms of such a sum are added to it.
void ConcatGradients(GraphBuilder& builder);

}  // namespace gradloom
