// torch.export's metadata about the tensors of a module. Private to compiler/onnx.
#pragma once

#include <map>
#include <string>

#include "compiler/onnx/model_file.h"

namespace gradloom {

// For each initializer of the file's main graph: see ImportedGraph::module_parameters.
std::map<std::string, bool> ModuleParameters(const ModelFile& file);

// Warnings of parameters that the exporter has stored twice, so that both are trained: as they are, and in a value that it computed from
// them (for example transposed for another reader), or in two such values. By the name of the computed value.
std::map<std::string, std::string> DividedParameters(const ModelFile& file);

// The initializers that the exporter computed of parameters that the file lacks (1 + weight, weight * mask), with the names of these. Not
// those that only have the elements in another form or place, which are trained as in the module.
std::map<std::string, std::string> ComputedParameters(const ModelFile& file);

}  // namespace gradloom
