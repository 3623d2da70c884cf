// Roots of values that cannot pass through 0 smoothly: norms, distances and deviations that are written out, and clamped values.
#pragma once

#include "compiler/graph/graph.h"

namespace gradloom {

// Whether the slope of the value's root is 0 where the value is 0, as for a norm, where the chain rule would multiply infinity by zero: the
// distance of a point to itself, the deviation of equal numbers, a cosine with a zero vector. The value is a sum or a mean of squares (or
// of larger even powers, or of powers of absolute values), in any form and possibly times constants, a product of such, which are 0 only
// if everything that is squared is 0, or a value whose negative elements were replaced by 0.
bool RootIsFlatAtZero(const Graph& graph, ValueId id);

}  // namespace gradloom
