// A recipe as an algorithm that an ONNX file can hold: loss, gradients to be taken, and updates, in operators of ONNX.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/onnx/export.h"
#include "compiler/onnx/import.h"
#include "compiler/passes/recipe.h"

namespace gradloom {

// The algorithm behind the model's graph, made of what the passes add_loss and add_optimizer make. `parameters`: names of those that are
// trained. The number of updates becomes a state of its own, of which the learning rate is a formula; extents that the model leaves open
// are read off its inputs. Throws Error(kUnsupported) for what no operators of ONNX say, with what to do.
Algorithm MakeAlgorithm(const Model& model, const Recipe& recipe, const ImportOptions& import, const std::vector<std::string>& parameters,
                        int64_t updates);

}  // namespace gradloom
