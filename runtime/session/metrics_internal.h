// Shared by the implementation files of metrics.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/session/metrics.h"

namespace gradloom::internal {

// An output with scores along one axis, and the correct classes: their numbers or, of a target with a probability for each, the largest.
class ClassScores {
 public:
  // Throws Error(kConfig) if the shapes do not fit.
  ClassScores(const MetricSpec& spec, const TensorView& output, const TensorView& target);

  int64_t classes() const { return classes_; }
  int64_t positions() const { return outer_ * inner_; }

  // The class at a position, or -1 if it is to be ignored. Throws Error(kData) for one that the output lacks.
  int64_t Class(int64_t position) const;
  double Score(int64_t position, int64_t c) const;
  // The class with the largest score at a position; of equal ones the lowest.
  int64_t Predicted(int64_t position) const;
  // log(sum(exp(scores))) at a position.
  double LogSum(int64_t position) const;

 private:
  // The first axis without which the output has the target's shape, except for trailing ones; 1 if there is none.
  int64_t ClassAxis() const;
  int64_t Element(int64_t position, int64_t c) const { return (position / inner_ * classes_ + c) * inner_ + position % inner_; }

  const MetricSpec& spec_;
  const TensorView& output_;
  const TensorView& target_;
  int64_t outer_ = 1, classes_ = 1, inner_ = 1;
  bool target_has_probabilities_ = false;  // the target has a probability for each class, not its number
};

// Throws Error(kConfig) if output and target have different numbers of elements.
void CheckSameElements(const MetricSpec& spec, const TensorView& output, const TensorView& target);

// The columns of yes or no of an output, along one axis; an output with at most one axis is a single column.
class Columns {
 public:
  // Throws Error(kConfig) if the output does not have the metric's class axis.
  Columns(const MetricSpec& spec, const TensorView& output);

  int64_t count() const { return count_; }
  // The column of an element of the output.
  int64_t Of(int64_t element) const { return element / inner_ % count_; }

 private:
  int64_t count_ = 1, inner_ = 1;
};

std::unique_ptr<Metric> MakeAuroc(const MetricSpec& spec);
std::unique_ptr<Metric> MakeF1(const MetricSpec& spec);
std::unique_ptr<Metric> MakeIou(const MetricSpec& spec);
std::unique_ptr<Metric> MakePrecision(const MetricSpec& spec);
std::unique_ptr<Metric> MakeRecall(const MetricSpec& spec);

}  // namespace gradloom::internal
