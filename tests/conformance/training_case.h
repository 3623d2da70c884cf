// A recorded training run: the model, what was fed, and what came out. The format is README.md's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/passes/recipe.h"
#include "runtime/base/tensor.h"

namespace gradloom {

struct Tolerance {
  double loss_atol = 0;
  std::vector<double> loss_rtol_steps;
  double grad_atol = 0, grad_rtol = 0;
  double param_atol = 0, param_rtol = 0;
  double outlier_fraction = 0;
};

struct TrainingCase {
  std::string name;
  std::string model_path;
  std::vector<std::string> inputs, outputs, targets;
  Recipe recipe;
  std::vector<double> lr_factors;    // one per batch; empty: none
  std::vector<int64_t> batch_sizes;  // one per batch
  std::vector<std::string> trainable, frozen, ill_conditioned;
  std::vector<std::string> detached;  // what the module detached and the file does not say, as --detach has it
  bool full = false;                  // grad/ and param/ arrays are given, not only norms and probes
  Tolerance tolerance;
  std::map<std::string, Tensor> batches;
  std::map<std::string, Tensor> expected;

  int steps() const { return static_cast<int>(batch_sizes.size()); }
};

// Reads case.json, batches.npz and expected.npz of a folder. Throws Error(kIo, kParse, kData, kConfig).
TrainingCase ReadTrainingCase(const std::string& folder);

// The same from the three files of a benchmark workload, which has no recording.
TrainingCase ReadWorkload(const std::string& model, const std::string& batches, const std::string& json);

}  // namespace gradloom
