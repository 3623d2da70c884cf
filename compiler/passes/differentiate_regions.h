// Gradients of gradloom.If and gradloom.Loop (compiler/ops/control_flow.cc): made of the gradients of their bodies.
//
// The gradient of an If is an If of the gradients of its branches. That of a Loop is a Loop that goes through the rounds from the last to
// the first: what each of them began with is kept, one row a round, by the loop itself, where the gradient needs it; what a round computes
// is computed again.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// Values and their gradients.
using Gradients = std::map<ValueId, ValueId>;

// Appends the gradients of the values in `wanted` to the graph of the builder, from those of the values in `seeds`.
using Backpropagation = std::function<Gradients(GraphBuilder& builder, const Gradients& seeds, std::span<const ValueId> wanted)>;

// Appends the gradients of the inputs of the node at `position` in the builder's graph; a loop gets further outputs and nodes before it.
// `output_gradients`: one an output, kNoValue for zero. `needed`: one an input, whether its gradient is wanted. By input; kNoValue: zero.
// Throws Error(kUnsupported) where the rounds of a loop have no bound.
std::vector<ValueId> DifferentiateRegions(GraphBuilder& builder, size_t position, const std::vector<ValueId>& output_gradients,
                                          const std::vector<bool>& needed, const Backpropagation& backpropagate);

}  // namespace gradloom
