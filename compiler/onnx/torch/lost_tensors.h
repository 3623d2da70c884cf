// The tensors of a module of which a file of PyTorch's default exporter has no trace. Private to compiler/onnx.
#pragma once

#include "compiler/onnx/edited_graph.h"
#include "compiler/onnx/torch/module_signature.h"

namespace gradloom {

// Those that are neither initializers nor sources of one, and that no node's metadata names: the nodes that read them were merged with
// others, or have lost their metadata, or the module does not use them.
NameSet LostTensors(EditedGraph& edited, const ModuleSignature& module);

}  // namespace gradloom
