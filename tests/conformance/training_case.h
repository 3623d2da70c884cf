// A recorded training run: the model, its inputs, and its results. README.md describes the format.
#pragma once

#include <map>
#include <optional>
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

  void MultiplyLoss(double factor);  // its bounds
};

struct TrainingCase {
  std::string name;
  std::string model_path;
  std::vector<std::string> inputs, outputs, targets;
  Recipe recipe;
  std::vector<double> lr_factors;    // one per batch; empty if there is no schedule
  std::vector<int64_t> batch_sizes;  // one per batch
  std::vector<std::string> trainable, frozen, ill_conditioned;
  std::vector<std::string> detached;  // values that the module detached without a trace in the file, for --detach
  bool full = false;                  // grad/ and param/ arrays are complete, not only norms and probes
  Tolerance tolerance;
  std::map<std::string, Tensor> batches;
  std::map<std::string, Tensor> expected;
  std::optional<std::vector<std::string>> names;  // of the parameters in `expected`; none: those of `trainable`

  int steps() const { return static_cast<int>(batch_sizes.size()); }
};

// Reads case.json, batches.npz and expected.npz of a folder. Throws Error(kIo, kParse, kData, kConfig).
TrainingCase ReadTrainingCase(const std::string& folder);

// Reads the same from the three files of a benchmark workload, which has no recording.
TrainingCase ReadWorkload(const std::string& model, const std::string& batches, const std::string& json);

}  // namespace gradloom
