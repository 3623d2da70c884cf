// Gradient accumulation: several batches, one update.
#pragma once

#include <map>
#include <span>

#include "compiler/graph/builder.h"

namespace gradloom {

// For each parameter a state "<parameter>/grad_sum" that starts at zero and has gradient / batches added
// in this entry. `gradients`: parameter -> gradient.
void AddAccumulation(GraphBuilder& builder, const std::map<ValueId, ValueId>& gradients, int64_t batches);

// The other side, for the entry that updates: the sums as gradients by parameter, each set back to zero.
std::map<ValueId, ValueId> TakeAccumulated(GraphBuilder& builder, std::span<const ValueId> parameters);

}  // namespace gradloom
