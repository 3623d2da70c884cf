// Which classes a model takes for which.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/plan/loss_info.h"
#include "runtime/session/metrics.h"

namespace gradloom {

// What a model says about one class.
struct ClassResult {
  int64_t rows = 0;                          // of this class
  double precision = 0, recall = 0, f1 = 0;  // as the metrics; NaN for a class that is neither a target nor predicted
};

// Counts pairs of the target's class and the predicted one, in memory for the pairs that occur. The target of a binary cross entropy has
// the classes 0 and 1.
class ConfusionMatrix {
 public:
  // `spec`: how the output and the target are read; its name is only used in messages.
  explicit ConfusionMatrix(MetricSpec spec) : spec_(std::move(spec)) {}

  const MetricSpec& spec() const { return spec_; }

  // Adds one batch. Throws Error(kConfig) if output and target have no classes, or other classes than the batches before; Error(kData) for
  // a class that the output does not have.
  void Add(const TensorView& output, const TensorView& target);

  // 0 before the first batch.
  int64_t classes() const { return std::ssize(counts_); }
  // By the target's class, and then by the predicted one: how often both occur together. What does not occur is left out.
  const std::vector<std::map<int64_t, int64_t>>& counts() const { return counts_; }
  std::vector<ClassResult> ByClass() const;

 private:
  void Resize(int64_t classes);

  MetricSpec spec_;
  std::vector<std::map<int64_t, int64_t>> counts_;
};

// The predicted class at each position of an output, and its probability.
struct PredictedClasses {
  Tensor classes;        // int64, in the output's shape without the axis of the classes
  Tensor probabilities;  // float32, in the same shape
};

// For an output that a loss compares with classes or with their probabilities: scores along an axis, or one binary score per row or
// position (the classes are then 0 and 1). nullopt if the loss does not compare this output with classes.
std::optional<PredictedClasses> PredictClasses(const LossInfo& loss, const TensorView& output);

// The probabilities of all classes at each position of such an output: float32, in the shape of the predicted classes with one more axis at
// the end, or [rows, 2] for a binary score. nullopt like PredictClasses.
std::optional<Tensor> ClassProbabilities(const LossInfo& loss, const TensorView& output);

}  // namespace gradloom
