// Puts the gradients of parts together.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// A tensor that is read in parts (the steps of a sequence, the gates of a cell, the halves of rotary positions) gets its gradient as a sum
// of as many tensors of its size, each of zeros but for its part: work that grows with the square of their number. Sums of two or more
// gradients of parts that do not overlap, slices of one axis or rows by a constant number, are one Concat here, with zeros between. What
// else is in such a sum is added to it.
void ConcatGradients(GraphBuilder& builder);

}  // namespace gradloom
