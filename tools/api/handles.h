// Model handles of the C table, which exist only in a library with the compiler.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "include/gradloom/gradloom_c.h"

struct GradloomModel {
  gradloom::Model model;
  std::string path;  // path of the model file; empty for a model from a buffer
  std::vector<std::string> inputs;
};
