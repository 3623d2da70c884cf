// Parameters of which PyTorch's default exporter writes parts. Private to compiler/onnx.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/model_file.h"

namespace gradloom {

// The exporter makes a Split without metadata of a parameter that the code divides, such as the in_proj_bias of an nn.MultiheadAttention
// whose query differs from its keys. If that one was merged with an equal tensor of another module, so were the nodes; nothing but the
// modules of the readers of its parts says whose they are. Gives each of these modules a Split of its own tensor: of the one that has the
// same name there, or else of the only one, if the file has no trace of it. Returns the names of the restored tensors.
std::vector<std::string> RestoreSplits(ModelFile& file);

}  // namespace gradloom
