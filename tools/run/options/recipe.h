// Converts the keys of a configuration to the compiler's recipe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "compiler/passes/recipe.h"
#include "tools/config/configuration.h"

namespace gradloom {

// Fills in what the configuration leaves open from the graph's outputs: the loss is guessed from the shape of the first one.
// `total_updates`: for schedules that end; 0: unknown. Guesses are added to `notes`. Throws Error(kConfig), Error(kDevice), and what
// Model::Load throws for a loss in a file.
Recipe RecipeOf(const Configuration& configuration, const Model& model, const Graph& graph, int64_t total_updates,
                std::vector<std::string>& notes);

}  // namespace gradloom
