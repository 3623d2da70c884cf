// A line about code whose gradient the file does not have.
#pragma once

#include <string>

#include "compiler/onnx/import.h"

namespace gradloom {

// If nodes of the file come from autograd functions of the module's code, a line that says how many, and from which lines of code;
// otherwise
// "". Their gradient is the one of what they compute, which their backward() need not be.
std::string FunctionNote(const Model& model);

}  // namespace gradloom
