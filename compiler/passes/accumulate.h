// Gradient accumulation: several batches, one update.
#pragma once

#include <map>
#include <span>

#include "compiler/graph/builder.h"

namespace gradloom {

// For each parameter a state "<parameter>/grad_sum" that starts at zero and has `factor` times its gradient added in this entry.
// `gradients`: parameter -> gradient. `partial`: each device that shares the batch adds its own part of the gradient to its own part of the
// state, and nothing is summed over devices before the update.
void AddAccumulation(GraphBuilder& builder, const std::map<ValueId, ValueId>& gradients, double factor, bool partial);

// The other side, for the entry that updates: the sums as gradients by parameter, each set back to zero.
std::map<ValueId, ValueId> TakeAccumulated(GraphBuilder& builder, std::span<const ValueId> parameters, bool partial);

// In the graph of a device, whose partial states hold its own part each: sums them over the devices before anything reads them, in
// meetings of at most `bucket_bytes` or of one state. All devices of the same part of the model must have the same states.
void SumPartialStates(Graph& graph, int64_t bucket_bytes);

}  // namespace gradloom
