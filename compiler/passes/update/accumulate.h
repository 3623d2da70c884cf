// Gradient accumulation: several batches contribute to one update.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string_view>

#include "compiler/graph/builder.h"
#include "compiler/passes/recipe.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// A state, int64 []: the weight of the batches since the last update (WeightOfBatch), which divides the accumulated gradients by it. It is
// the one accumulator that belongs to no parameter. Plans of releases whose updates did not end with epochs lack it.
inline constexpr std::string_view kAccumulatedWeightState = "gradloom/accumulated_weight";

// Whether each of several replicas keeps its own part of the accumulated gradients until the update. Not if gradients are fetched with each
// batch, which requires their sums, nor if the caller decides when to update (recipe.accumulate is 1) and may read them at any time, nor if
// one device gathers the samples.
bool KeepsParts(const Recipe& recipe, int copies);

// Whether the gradients of an update are the weighted mean over its batches. Otherwise they are the sum over the batches: if all losses are
// sums over samples that have the same weight, or if the caller decides how many batches make an update.
bool DividesByWeight(const Recipe& recipe);

// The weight of a batch of `samples` in an update of several batches: 1, or its samples with recipe.accumulate_samples.
int64_t WeightOfBatch(const Recipe& recipe, int64_t samples);

// Adds for each parameter a state "<parameter>/grad_sum", which starts at zero and to which this entry adds `factor` times the gradient.
// `gradients`: parameter -> gradient. `partial`: each device that shares the batch adds its part of the gradient to its part of the state,
// and nothing is summed over devices before the update.
void AddAccumulation(GraphBuilder& builder, const std::map<ValueId, ValueId>& gradients, double factor, bool partial);

// For the entry that trains on the last batch of an update, and then updates. Returns the accumulated gradients, including this batch's, by
// parameter, and sets the states to zero. Each is computed right after its gradient. With `partial`, they are partial values, which
// SumPartialValues all-reduces.
std::map<ValueId, ValueId> CompleteAccumulation(GraphBuilder& builder, const std::map<ValueId, ValueId>& gradients, double factor,
                                                bool partial);

// For an entry that only updates: returns the accumulated gradients by parameter, and sets each to zero. Only of parameters for which the
// plan's earlier entries accumulate, since an update must not decay one that the loss does not depend on; of all if there is no such entry.
std::map<ValueId, ValueId> TakeAccumulated(GraphBuilder& builder, std::span<const ValueId> parameters, const Plan& plan, bool partial);

// Adds the weight of this entry's batch to that of earlier batches (kAccumulatedWeightState).
void AddWeight(GraphBuilder& builder, int64_t weight);

// Sets that weight to zero. Returns the weight by which the accumulated gradients must be divided, int64 []: that of earlier batches and
// `weight` of this one; kNoValue unless DividesByWeight.
ValueId TakeWeight(GraphBuilder& builder, const Recipe& recipe, int64_t weight);

// Whether the node adds a gradient to a partial state.
bool AddsToPart(const Graph& graph, const Node& node);
// The position of that gradient among the operands of such a node.
size_t AddedOperand(const Graph& graph, const Node& node);

// For the graph of one device. Sums its partial values over the devices before nodes other than AddsToPart read them, in all-reduces of at
// most `bucket_bytes` or of one value. All devices of a stage must have the same partial values, computed in the same order relative to
// their other collectives.
void SumPartialValues(Graph& graph, int64_t bucket_bytes);

}  // namespace gradloom
