// Models of the C table, which only a library with a compiler has.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "include/gradloom/gradloom_c.h"

struct GradloomModel {
  gradloom::Model model;
  std::string path;  // of its file; empty where it is from a buffer
  std::vector<std::string> inputs;
};
