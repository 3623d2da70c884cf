// How a configuration has a model found, loaded, imported and compiled, apart from the recipe.
#pragma once

#include <string>

#include "compiler/onnx/import.h"
#include "compiler/passes/pipeline.h"
#include "tools/config/configuration.h"

namespace gradloom {

// The path of the model. Throws Error(kConfig) if none is given.
const std::string& ModelPathOf(const Configuration& configuration);

// Throws Error(kConfig) for an unknown limit.
LoadOptions LoadOptionsOf(const Configuration& configuration);

ImportOptions ImportOptionsOf(const Configuration& configuration);
// The same for a model whose batch size may be given by its symbol (--shape N=32), which then is the batch, as --batch is: the last batch
// of an epoch may be smaller. If both are given and differ, the import says so.
ImportOptions ImportOptionsOf(const Configuration& configuration, const Model& model);

PassControl PassControlOf(const Configuration& configuration);

}  // namespace gradloom
