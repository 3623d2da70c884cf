#include "runtime/session/class_range.h"

namespace gradloom {

int64_t FirstOutOfRange(const TensorView& labels, const ClassRange& range) {
  for (int64_t i = 0; i < labels.elements(); ++i) {
    const int64_t label = ElementAsInt(labels, i);
    if ((label < 0 || label >= range.count) && label != range.ignored) return i;
  }
  return -1;
}

Error ClassError(int64_t row, int64_t label, const std::string& column, const ClassRange& range, const std::string& file) {
  return {ErrorCode::kData,
          "row " + std::to_string(row) + " (counted from 0) has class " + std::to_string(label) + " in '" + Escaped(column) +
              "'; the model has classes 0 to " + std::to_string(range.count - 1),
          file, "classes count from 0" + (range.ignored ? "; to exclude a row, give it the class " + std::to_string(*range.ignored) : "")};
}

}  // namespace gradloom
