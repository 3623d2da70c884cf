// Recognizes straight-through estimators in files that do not say what was detached.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// An exporter that writes nothing of a detach() writes x + (step(x) - x).detach() as a value that is added and subtracted again, beside a
// value that no parameter reaches differentiably. As written, no gradient passes at all, which cannot be intended. So the difference gets
// no gradient, and that of the sum passes to x. Recognized are x + (s - x), x - (x - s) and (s + x) - x, for an s that is rounded, compared
// or chosen, also if it is then multiplied by a learned scale (after a division by the largest of a row); and (x - c x) + c x, a value
// whose gradient is scaled by a number. Returns how many were found.
int64_t PassStraightThrough(GraphBuilder& builder, const std::vector<ValueId>& parameters);

}  // namespace gradloom
