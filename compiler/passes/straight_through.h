// Straight-through estimators in files that do not say what was detached.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// What x + (step(x) - x).detach() is in a file of an exporter that writes nothing of a detach(): a value that is added and taken away
// again, beside one that no parameter has a differentiable way to. As it stands no gradient passes at all, which nobody can have meant; so
// the difference gets none, and that of the sum goes to x whole. Taken so are x + (s - x), x - (x - s) and (s + x) - x, for an s that is
// rounded, compared or chosen, also where it is multiplied by a learned scale after that (what was divided by the largest of a row); and
// (x - c x) + c x, a value whose gradient is scaled by a number. Returns how many there were.
int64_t PassStraightThrough(GraphBuilder& builder, const std::vector<ValueId>& parameters);

}  // namespace gradloom
