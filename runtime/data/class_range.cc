#include "runtime/data/class_range.h"

#include <algorithm>

#include "runtime/base/ignored_class.h"

namespace gradloom {

std::optional<ClassRange> ClassesOf(const LossInfo& loss, const Shape& output) {
  // One of two classes for each sample.
  if (loss.type == "bce" || loss.type == "bce_with_logits")
    return output.rank() > 0 && output.elements() == output[0] ? std::optional(ClassRange()) : std::nullopt;
  const int64_t axis = loss.class_axis < 0 ? loss.class_axis + output.rank() : loss.class_axis;
  if (!loss.classes || axis < 0 || axis >= output.rank()) return std::nullopt;
  return ClassRange{std::max<int64_t>(output[static_cast<int>(axis)], 1),
                    loss.ignore_index.value_or(kIgnoredClass),
                    loss.type,
                    loss.output,
                    output,
                    static_cast<int>(axis)};
}

std::optional<Shape> ClassRange::RowAlong(int class_axis, int sample_axis) const {
  if (axis < 0 || class_axis < 0 || class_axis >= shape.rank() || class_axis == sample_axis || shape.rank() < 2) return std::nullopt;
  Shape row;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != class_axis && i != sample_axis) row.push_back(shape[i]);
  }
  return row;
}

int64_t FirstOutOfRange(const TensorView& labels, const ClassRange& range) {
  for (int64_t i = 0; i < labels.elements(); ++i) {
    const int64_t label = ElementAsInt(labels, i);
    if ((label < 0 || label >= range.count) && label != range.ignored) return i;
  }
  return -1;
}

Error ClassError(int64_t row, int64_t label, const std::string& column, const ClassRange& range, const std::string& file) {
  if (range.count == 1 && range.axis >= 0 && label == 1) {
    const std::string operands = "(" + Escaped(range.output.empty() ? "OUTPUT" : range.output) + ", " + Escaped(column) + ")";
    return {ErrorCode::kData,
            "row " + std::to_string(row) + " (counted from 0) has class 1 in '" + Escaped(column) +
                "', but the output has one score for each sample, " + "so it knows only class 0",
            file, "for yes or no by one score: --loss 'bce_with_logits" + operands + "', or bce if it is a probability (a sigmoid)"};
  }
  return {ErrorCode::kData,
          "row " + std::to_string(row) + " (counted from 0) has class " + std::to_string(label) + " in '" + Escaped(column) +
              "'; the model has classes 0 to " + std::to_string(range.count - 1),
          file, "classes count from 0" + (range.ignored ? "; to exclude a row, give it the class " + std::to_string(*range.ignored) : "")};
}

}  // namespace gradloom
