// What a run is judged by, gathered batch by batch and exact over a last partial batch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/tensor.h"

namespace gradloom {

class Metric {
 public:
  virtual ~Metric() = default;

  // One batch: a model output and its target. Throws Error(kConfig) where they do not suit the metric.
  virtual void Add(const TensorView& output, const TensorView& target) = 0;

  // Over everything added; NaN where nothing was.
  virtual double Value() const = 0;

  // "accuracy": the share of samples whose largest logit (over the last axis of [N, C], axis 1 of
  //   [N, C, ...]) is the class in the int64 target; a float output of one number a sample counts as right
  //   where its sign (logit) agrees with the 0/1 target.
  // "mse", "rmse", "mae": over all elements.
  // Throws Error(kConfig) listing the names there are.
  static std::unique_ptr<Metric> Make(std::string_view name);
};

// The names that Make knows.
std::vector<std::string> MetricNames();

// Whether a larger value is better.
bool LargerIsBetter(std::string_view metric);

}  // namespace gradloom
