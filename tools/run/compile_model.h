// A model compiled as a configuration says, where there are no data to tell batch sizes: for the verbs check and compile, and for the C
// table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tools/config/configuration.h"

namespace gradloom {

// What the plan is to have besides training steps.
struct CompileWishes {
  bool only_check = false;       // nothing: the plan is not kept
  std::vector<int64_t> batches;  // in place of the configured one
  bool eval = true, predict = true;
  bool gradients = false;  // gradients and the update apart
  bool outputs = false;    // training entries give the model's outputs, too
};

struct CompiledModel {
  Plan plan;
  CompileOptions options;  // that it was compiled with
  CompileReport report;
  std::vector<std::string> notes;  // what was guessed, one line each
};

// Throws Error of any class that names the model or a key.
CompiledModel CompileModel(Configuration configuration, const Model& model, const CompileWishes& wishes);

// "import 0.3 ms, passes 11.5 ms, proof 0.2 ms (1.5 %)".
std::string CompileTimes(const CompileReport& report);

}  // namespace gradloom
