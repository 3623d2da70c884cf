// Gradient accumulation: several batches make one update.
#pragma once

#include <map>
#include <span>

#include "compiler/graph/builder.h"

namespace gradloom {

// Adds for each parameter a state "<parameter>/grad_sum", which starts at zero and to which this entry adds `factor` times the gradient.
// `gradients`: parameter -> gradient. `partial`: each device that shares the batch adds its part of the gradient to its part of the state,
// and nothing is summed over devices before the update.
void AddAccumulation(GraphBuilder& builder, const std::map<ValueId, ValueId>& gradients, double factor, bool partial);

// The counterpart for the entry that updates: returns the sums as gradients by parameter, and sets each to zero.
std::map<ValueId, ValueId> TakeAccumulated(GraphBuilder& builder, std::span<const ValueId> parameters, bool partial);

// For the graph of a device, whose partial states hold the device's own part. Sums them over the devices before anything reads them, in
// all-reduces of at most `bucket_bytes` or of one state. All devices of the same part of the model must have the same states.
void SumPartialStates(Graph& graph, int64_t bucket_bytes);

}  // namespace gradloom
