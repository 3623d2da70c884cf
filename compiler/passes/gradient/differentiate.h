// Reverse-mode differentiation of a graph, with the gradient of each operator's row.
#pragma once

#include <map>
#include <span>

#include "compiler/graph/builder.h"

namespace gradloom {

// Appends to the builder's graph, in phase kBackward, the nodes that compute d loss / d value for every `wanted` value, and returns the
// gradients by wanted value. A value on which the loss does not depend differentiably is left out, except that one on which it depends
// through step functions (kSteps) alone has a gradient of zeros. `loss` is a floating-point scalar.
// Contributions are added in the order in which the backward phase makes them, so the sum is the same in every run.
//
// Throws Error(kUnsupported) naming every operator without a gradient at once, each with a node and a wanted value that needs it;
// Error(kShape, kType) if `loss` is not a floating-point scalar.
//
// `scale`, a scalar: differentiates `scale` times the loss.
std::map<ValueId, ValueId> Differentiate(GraphBuilder& builder, ValueId loss, std::span<const ValueId> wanted, ValueId scale = kNoValue);

// Replaces every StopGradient and MaskGradient by an Identity, in bodies too. Run it after differentiation.
void DropStops(Graph& graph);

}  // namespace gradloom
