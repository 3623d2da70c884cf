// Lines about weights that the file does not have as the module had them.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// The restored parameters of the model, and the matrices that the plan ties.
std::vector<std::string> WeightNotes(const Model& model, const Plan& plan);

}  // namespace gradloom
