// Norms, distances and deviations that are written out.
#pragma once

#include "compiler/graph/graph.h"

namespace gradloom {

// Whether the value is a sum or a mean of squares (or of larger even powers, or of powers of absolute values), times a constant or not, in
// whatever form, or a product of such. It is 0 only where all that was squared in one of them is, and the slope of its root is 0 there, as
// that of a norm, where the chain rule has infinity times zero: the distance of a point to itself, the deviation of equal numbers, a cosine
// with nothing.
bool IsSumOfSquares(const Graph& graph, ValueId id);

}  // namespace gradloom
