// Gradient accumulation: several batches make one update.
#pragma once

#include <map>
#include <span>

#include "compiler/graph/builder.h"
#include "compiler/passes/recipe.h"

namespace gradloom {

// Whether each of several copies of the model keeps its own part of the accumulated gradients until the update. Not if gradients are
// fetched with each batch, since they are summed for that, or if the caller decides when to update (recipe.accumulate is 1) and may read
// them at any time; and not if one device gathers the samples.
bool KeepsParts(const Recipe& recipe, int copies);

// Adds for each parameter a state "<parameter>/grad_sum", which starts at zero and to which this entry adds `factor` times the gradient.
// `gradients`: parameter -> gradient. `partial`: each device that shares the batch adds its part of the gradient to its part of the state,
// and nothing is summed over devices before the update.
void AddAccumulation(GraphBuilder& builder, const std::map<ValueId, ValueId>& gradients, double factor, bool partial);

// For the entry that trains on the last batch of an update and updates: returns the sums of all gradients by parameter, and sets the states
// to zero. Each sum is made right after its gradient. If they are partial, each sum is a partial value, which SumPartialValues sums over
// the devices.
std::map<ValueId, ValueId> CompleteAccumulation(GraphBuilder& builder, const std::map<ValueId, ValueId>& gradients, double factor,
                                                bool partial);

// The counterpart for the entry that updates: returns the sums as gradients by parameter, and sets each to zero.
std::map<ValueId, ValueId> TakeAccumulated(GraphBuilder& builder, std::span<const ValueId> parameters, bool partial);

// Whether the node adds the device's part of a gradient to its part of an accumulated one.
bool AddsToPart(const Graph& graph, const Node& node);

// For the graph of a device, whose partial values hold the device's own part. Before anything but AddsToPart reads them, sums them over the
// devices in all-reduces of at most `bucket_bytes` or of one value. All devices of the same part of the model must have the same partial
// values, and make them in the same places among their collectives.
void SumPartialValues(Graph& graph, int64_t bucket_bytes);

}  // namespace gradloom
