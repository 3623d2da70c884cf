// A written model with some of its outputs alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

// Leaves of a model's outputs those named, in the model's order, and of nodes, inputs and initializers what they need. `model` is binary
// ONNX, and so is what comes out. Throws Error(kConfig) for a name that is no output, with those there are.
std::string KeepOutputs(std::string_view model, const std::vector<std::string>& names);

}  // namespace gradloom
