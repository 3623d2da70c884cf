// Makes the nodes of derivatives that the file itself asks for (ONNX's Gradient).
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Replaces every gradloom.Derivative (compiler/ops/derivative.cc), in the order of the graph, so that derivatives of derivatives are
// possible. What lies between the named values and y is there once more, on values of its own; where these are the named ones,
// simplification makes one of both. Throws what Differentiate throws.
void ExpandDerivatives(GraphBuilder& builder);

}  // namespace gradloom
