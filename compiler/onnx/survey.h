// What of a model file this library does not support, all of it at once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "runtime/base/error.h"

namespace gradloom {

// One Error(kUnsupported) for each operator that does not exist or has no kernel, each element type that no tensor can
// have here, and each operator without a gradient between a weight and an output; with the names of their nodes. For
// a model that does not load or import: it goes by names alone and knows no shapes, so a weight is any floating
// initializer or constant with an axis, unless `is_frozen` says otherwise of its name. Empty where every operator and
// type is supported: then compiling the model says what is missing, and knows better which weights are trained.
// Throws what Model::Load throws for a file that is no valid model.
std::vector<Error> FindObstacles(const std::string& path, const std::function<bool(const std::string&)>& is_frozen = {},
                                 const LoadOptions& options = {});

}  // namespace gradloom
