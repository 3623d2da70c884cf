// Nodes of new modules that PyTorch's default exporter has merged. Private to compiler/onnx.
#pragma once

#include "compiler/onnx/model_file.h"

namespace gradloom {

// The exporter keeps one of several small tensors with equal elements, and then one of several nodes that compute the same of the same
// inputs. Layers of a new module that begin alike and read the same value (the modulation of each block by adaLN-Zero, the normalizations
// of parallel branches, heads) become one, and the file has the parameters of that one alone. This copies its nodes for each layer whose
// parameters the file lacks, with metadata that names them, so that RestoreParameters gives each its own. It needs all of these traces:
// - parameters of the module that nothing in the file names, beside those of the layer in the module: blocks.1.ada.weight,
// blocks.0.ada.weight;
// - nodes that read the layer's result, or what is computed of it, under another name than it has;
// - nodes in between that have more readers in the file than in torch.export's graph, and in that graph a call like the layer's that
//   the file lacks. A layer that the module calls once, for several readers, has neither.
// The nodes compute what they computed before.
void SeparateNodes(ModelFile& file);

}  // namespace gradloom
