// Shared by the implementation files of metrics.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

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
  // Vocabularies have tens of thousands of scores at each position, so they are read as fast as memory.
  double Score(int64_t position, int64_t c) const { return ScoreOf(Element(position, c)); }
  // The class with the largest score at a position; of equal ones the lowest.
  int64_t Predicted(int64_t position) const;
  // log(sum(exp(scores))) at a position.
  double LogSum(int64_t position) const;
  // Whether the class `right` is among the k largest scores at a position; of equal scores the lower class comes first. A score of NaN
  // never is.
  bool IsAmongLargest(int64_t position, int64_t right, int64_t k) const;

  // f(position) for each position, in their order, where f is a function of the position alone: on several threads if there are many
  // scores. Throws what f throws for the first position for which it throws.
  template <typename T>
  std::vector<T> Computed(const std::function<T(int64_t)>& f) const {
    std::vector<T> values(static_cast<size_t>(positions()));
    ForEachPosition([&](int64_t position) { values[static_cast<size_t>(position)] = f(position); });
    return values;
  }

 private:
  void ForEachPosition(const std::function<void(int64_t)>& f) const;
  double ScoreOf(int64_t element) const {
    const double value = floats_ != nullptr ? static_cast<double>(floats_[element]) : ElementAsDouble(output_, element);
    return spec_.probabilities ? std::log(value) : value;
  }
  // The first axis without which the output has the target's shape, except for trailing ones; 1 if there is none.
  int64_t ClassAxis() const;
  int64_t Element(int64_t position, int64_t c) const { return (position / inner_ * classes_ + c) * inner_ + position % inner_; }

  const MetricSpec& spec_;
  const TensorView& output_;
  const TensorView& target_;
  const float* floats_;  // the output's elements; null if they have another type
  int64_t outer_ = 1, classes_ = 1, inner_ = 1;
  bool target_has_probabilities_ = false;  // the target has a probability for each class, not its number
};

// Whether the element of a binary target says yes: above 0.5. Throws Error(kConfig) for a number that means neither yes nor no.
bool IsYes(const MetricSpec& spec, const TensorView& target, int64_t i);

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
