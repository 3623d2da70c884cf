// torch.export's metadata about the tensors of a module. Private to compiler/onnx.
#pragma once

#include <map>
#include <string>

#include "compiler/onnx/model_file.h"

namespace gradloom {

// For each initializer of the file's main graph: see ImportedGraph::module_parameters.
std::map<std::string, bool> ModuleParameters(const ModelFile& file);

}  // namespace gradloom
