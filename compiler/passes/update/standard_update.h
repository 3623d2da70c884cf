// The updates of optimizers as operators of ONNX.
#pragma once

#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// Whether the node is one of compiler/ops/optimizer.cc.
bool IsUpdate(const Node& node);

// Appends ONNX operators that compute the node's outputs, and returns these. Throws Error(kUnsupported) for an update that may be skipped,
// and for elements that are neither float32 nor float64.
std::vector<ValueId> StandardUpdate(GraphBuilder& builder, const Node& node);

}  // namespace gradloom
