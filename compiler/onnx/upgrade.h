// Brings a node of an older opset to kOpset. Private to this directory.
//
// ONNX's own version converter is not used: it takes the whole model through an intermediate form of its own, copies
// every weight on the way, has no adapter for some operators, and loses functions, names and nested graphs. Here
// each node is rewritten by itself while it is imported, when the shapes of its inputs are known.
#pragma once

#include "compiler/onnx/emitter.h"

namespace gradloom {

// Rewrites `node`, of the operator's version `since` (the schema's since_version at the opset that the model
// imports; default domain), to the form of kOpset. Nodes that must come before it go to `emitter`; the node itself
// stays the one that makes the outputs. `num_outputs` outputs are asked for, and may become fewer where an old
// version's outputs are gone. Throws Error(kUnsupported, kAttr) where there is no equal form.
void UpgradeNode(Emitter& emitter, Node& node, int since, size_t& num_outputs);

// Whether a node as it is at kOpset would be another one at version `since` of its operator.
bool IsUpgraded(const Graph& graph, const Node& node, int since);

}  // namespace gradloom
