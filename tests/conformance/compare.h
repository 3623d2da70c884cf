// Compares a training run with its recording, by the rules of README.md.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/conformance/training_case.h"

namespace gradloom {

// What a run of a case gives.
struct TrainingRun {
  std::vector<double> losses;                // of each batch, before its update
  std::map<std::string, Tensor> gradients;   // of the first batch, by initializer
  std::map<std::string, Tensor> parameters;  // after the last step: trained, frozen and statistics
  std::map<std::string, Tensor> initial;     // the same before the first
};

// Errors in units of their bounds: at most 1 passes.
struct Deviation {
  double loss = 0, gradient = 0, parameter = 0;
  std::string worst;                  // what deviates most, for a person
  std::vector<std::string> failures;  // one line each

  bool passed() const { return failures.empty(); }
};

Deviation Compare(const TrainingCase& recorded, const TrainingRun& run);

}  // namespace gradloom
