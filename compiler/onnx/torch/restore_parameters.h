// Parameters that an exporter has merged with others or left out. Private to compiler/onnx.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/model_file.h"

namespace gradloom {

// PyTorch's exporters keep one of several small tensors with equal elements (the scales of all normalizations of a new module, the biases
// that are zero, and numbers in the code that equal a parameter), and leave out biases that are zero, so a new module would train with
// fewer weights than it has, or with other gradients. This gives each of them its own initializer again, with the elements that the file
// has for it, in the main graph, for the nodes of nested graphs too:
// - in files of the default exporter (optimize=True), whose metadata says what each node read in torch.export's graph. The weight of a
//   linear layer that the file has transposed, and a vector that it has in another shape, get the module's form, and a node that makes the
//   other one of it. Other tensors that were computed from a missing one are restored as they are, as "parameter/form". What is no tensor
//   of the module becomes a constant, "parameter/constant". A warning of the file names the parameters that are lost.
//   Whole layers that were merged are separated first (separate_nodes.h), and tensors that are read in parts get theirs (restore_splits.h).
// - in files of the older exporter, which in evaluation mode writes Identities of initializers for such tensors.
// Not in files with a training algorithm. Returns the names of the restored tensors, in the order of the nodes.
std::vector<std::string> RestoreParameters(ModelFile& file);

}  // namespace gradloom
