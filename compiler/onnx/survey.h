// Lists everything in a model file that is not supported.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "runtime/base/error.h"

namespace gradloom {

// Returns one Error(kUnsupported) for each operator that does not exist or has no kernel, for each element type that tensors cannot have,
// and for each operator without a gradient between a weight and an output, with the names of their nodes.
//
// It is for models that cannot be loaded or imported. It uses only names and knows no shapes, so every floating-point initializer or
// constant with at least one axis counts as a weight, unless `is_frozen` is true for its name. Returns an empty list if every operator and
// type is supported. Compiling the model then tells what is missing, and knows exactly which weights are trained. Throws what Model::Load
// throws for an invalid file.
std::vector<Error> FindObstacles(const std::string& path, const std::function<bool(const std::string&)>& is_frozen = {},
                                 const LoadOptions& options = {});

}  // namespace gradloom
