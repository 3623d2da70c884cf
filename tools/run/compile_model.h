// Compiles a model as configured if there is no data to derive batch sizes from, for the verbs check and compile and for the C table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tools/config/configuration.h"

namespace gradloom {

// The entries of the plan besides training steps.
struct EntryRequests {
  bool only_check = false;       // the plan is not kept
  std::vector<int64_t> batches;  // replace the configured batch size
  bool eval = true, predict = true;
  bool gradients = false;                    // gradients and update as separate entries
  bool outputs = false;                      // training entries also return the model's outputs
  std::vector<std::string> input_gradients;  // of which training entries also return the gradients
};

struct CompiledModel {
  Plan plan;
  CompileOptions options;  // that the plan was compiled with
  CompileReport report;
  std::vector<std::string> notes;  // guesses, one per line
};

// Throws Error of any class that names the model or a key.
CompiledModel CompileModel(Configuration configuration, const Model& model, const EntryRequests& requests);

// Runs the passes up to compiler.stop_after, for what they print; there is no plan then. Throws like CompileModel.
void ShowPasses(Configuration configuration, const Model& model, const EntryRequests& requests);

// "import 0.3 ms, passes 11.5 ms, proof 0.2 ms (1.5 %)".
std::string CompileTimes(const CompileReport& report);

}  // namespace gradloom
