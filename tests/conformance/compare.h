// Compares a training run with its recording, by the rules in README.md.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/conformance/training_case.h"

namespace gradloom {

// The results of running a case.
struct TrainingRun {
  std::vector<double> losses;                // per batch, before its update
  std::map<std::string, Tensor> gradients;   // of the first batch, by initializer
  bool fetches_gradients = true;             // otherwise they are not compared
  std::map<std::string, Tensor> parameters;  // after the last step: trained and frozen parameters, and statistics
  std::map<std::string, Tensor> initial;     // the same before the first step
};

// Errors relative to their bounds. A value of at most 1 passes.
struct Deviation {
  double loss = 0, gradient = 0, parameter = 0;
  std::string worst;                  // describes the largest deviation
  std::vector<std::string> failures;  // one line per failure

  bool passed() const { return failures.empty(); }
};

Deviation Compare(const TrainingCase& recorded, const TrainingRun& run);

}  // namespace gradloom
