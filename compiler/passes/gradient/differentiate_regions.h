// Gradients of gradloom.If and gradloom.Loop (compiler/ops/control_flow.cc), made from the gradients of their bodies.
//
// The gradient of an If is an If of the gradients of its branches. The gradient of a Loop is a Loop that runs from the last iteration to
// the first. The forward loop keeps the values at the start of each iteration that the gradient needs, one row per iteration; what an
// iteration computes is recomputed.
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

// Appends to the builder's graph the gradients of the values in `wanted`, from those of the values in `seeds`.
using Backpropagation = std::function<Gradients(GraphBuilder& builder, const Gradients& seeds, std::span<const ValueId> wanted)>;

// Appends the gradients of the inputs of the node at `position` in the builder's graph; a loop gets further outputs, and nodes before it.
// `output_gradients`: one per output, kNoValue for zero. `needed`: for each input, whether its gradient is needed. Returns gradients by
// input; kNoValue: zero. Throws Error(kUnsupported) if the number of iterations of a loop has no bound.
std::vector<ValueId> DifferentiateRegions(GraphBuilder& builder, size_t position, const std::vector<ValueId>& output_gradients,
                                          const std::vector<bool>& needed, const Backpropagation& backpropagate);

}  // namespace gradloom
