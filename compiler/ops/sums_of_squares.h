// Recognizes norms, distances and deviations that are written out.
#pragma once

#include "compiler/graph/graph.h"

namespace gradloom {

// Whether the value is a sum or a mean of squares (or of larger even powers, or of powers of absolute values), in any form and possibly
// times a constant, or a product of such. It is 0 only if everything that was squared in one of them is 0. The slope of its root is then 0,
// as for a norm, where the chain rule would multiply infinity by zero: the distance of a point to itself, the deviation of equal numbers, a
// cosine with a zero vector.
bool IsSumOfSquares(const Graph& graph, ValueId id);

}  // namespace gradloom
