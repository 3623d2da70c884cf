// The classes of a target.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/tensor.h"
#include "runtime/plan/loss_info.h"

namespace gradloom {

// Classes 0 to count-1, and one that means none. A target in floating point (for a binary cross entropy) may also lie between its classes.
struct ClassRange {
  int64_t count = 2;
  std::optional<int64_t> ignored;
  // Where the loss reads the classes: along this axis of an output of the model of this shape. -1: nowhere.
  std::string loss = {}, output = {};
  Shape shape = {};
  int axis = -1;

  // The shape of a row of the target if the classes were along this axis instead, and the samples of the output along `sample_axis`;
  // nullopt if that is no such axis.
  std::optional<Shape> RowAlong(int class_axis, int sample_axis) const;
};

// The classes of a loss's target, for an output of this shape; nullopt if the target does not hold classes.
std::optional<ClassRange> ClassesOf(const LossInfo& loss, const Shape& output);

// The first element of integers that is not among these classes; -1 if there is none.
int64_t FirstOutOfRange(const TensorView& labels, const ClassRange& range);

// Error(kData) for class `label` of a row in this file.
Error ClassError(int64_t row, int64_t label, const std::string& column, const ClassRange& range, const std::string& file);

}  // namespace gradloom
