// The values that a file's own initialization (training_info) gives its initializers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/onnx/import.h"

namespace gradloom {

// Values by initializer, computed once, before any step. Random numbers are those of seed 0, keyed by the nodes that draw them. Throws what
// Import throws, and Error(kConfig) if the initialization has inputs.
std::vector<std::pair<std::string, Tensor>> InitialValues(const Model& model, int training_info);

}  // namespace gradloom
