// Upgrades a node of an older opset to kOpset. Private to compiler/onnx.
//
// ONNX's own version converter is not used. It converts the whole model to its own intermediate form, copies every weight, has no adapter
// for some operators, and loses functions, names and nested graphs. Here each node is rewritten by itself during the import, when the
// shapes of its inputs are known.
#pragma once

#include "compiler/onnx/emitter.h"

namespace gradloom {

// Rewrites `node` to the form of kOpset that kernels take. `since` is the version of its operator: the schema's since_version at the opset
// that the model imports; default domain. Nodes that must precede it are added to `emitter`; the node itself still makes the outputs.
// `listed` is the number of outputs that the file lists, including those without a name at the end; `num_outputs` is the number up to the
// last one in use. It can become smaller if kOpset has no longer all outputs of the old version. Throws Error(kUnsupported, kAttr, kShape)
// if there is no equivalent form.
void UpgradeNode(Emitter& emitter, Node& node, int since, size_t listed, size_t& num_outputs);

// Whether a node in the form of kOpset would have another form or meaning at version `since` of its operator.
bool IsUpgraded(const Graph& graph, const Node& node, int since);

}  // namespace gradloom
