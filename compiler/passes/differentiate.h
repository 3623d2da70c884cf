// Reverse-mode differentiation of a graph, by the gradient of each operator's row.
#pragma once

#include <map>
#include <span>

#include "compiler/graph/builder.h"

namespace gradloom {

// Appends to the builder's graph, in phase kBackward, the nodes that compute d loss / d value for every
// `wanted` value, and returns the gradients by wanted value. A value that the loss does not depend on
// differentiably is left out. `loss` is a floating scalar. Contributions are added in the order in which
// the backward phase makes them, so the sum is the same at every run.
//
// Throws Error(kUnsupported) naming every operator without a gradient at once, each with a node and a
// wanted value that needs it; Error(kShape, kType) where `loss` is no floating scalar.
//
// `scale`, a scalar: the gradients are of `scale` times the loss.
std::map<ValueId, ValueId> Differentiate(GraphBuilder& builder, ValueId loss, std::span<const ValueId> wanted, ValueId scale = kNoValue);

// Makes an Identity of every StopGradient, in bodies too: for what comes behind differentiation.
void DropStops(Graph& graph);

}  // namespace gradloom
