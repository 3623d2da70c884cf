// Expands derivatives that the file itself asks for (ONNX's Gradient) into nodes.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Replaces every gradloom.Derivative (compiler/ops/derivative.cc), in the order of the graph, so derivatives of derivatives are possible.
// What lies between the given values and y is duplicated on values of its own; if these equal the given ones, simplification merges the
// copies. Throws what Differentiate throws.
void ExpandDerivatives(GraphBuilder& builder);

}  // namespace gradloom
