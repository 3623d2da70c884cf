// Writes a recipe as an algorithm for an ONNX file: loss, gradients and updates in ONNX's operators.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/onnx/export/export.h"
#include "compiler/onnx/import.h"
#include "compiler/passes/recipe.h"

namespace gradloom {

// The algorithm that follows the model's graph, made from the results of the passes add_loss and add_optimizer. `parameters`: names of the
// trained ones; `tied`: those that follow one of them. The number of updates becomes a state; the learning rate is a formula of it. Extents
// that the model leaves open are read from its inputs. Throws Error(kUnsupported), with a remedy, for what ONNX's operators cannot express.
Algorithm MakeAlgorithm(const Model& model, const Recipe& recipe, const ImportOptions& import, const std::vector<std::string>& parameters,
                        const std::vector<TiedTensor>& tied, int64_t updates);

}  // namespace gradloom
