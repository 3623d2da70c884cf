// Rows of a data set that stay in their file until they are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/data/class_range.h"
#include "runtime/data/dataset.h"
#include "runtime/data/stored_array.h"

namespace gradloom {

struct StoredRowsOptions {
  DType dtype = DType::kFloat32;  // dtype and shape of a row as needed
  Shape row_shape;
  int64_t rows = 0;
  // Row i has the elements from first + i * row_shape.elements() on.
  int64_t first = 0;
  // A row with any other class is Error(kData), which names the row and `column`.
  std::optional<ClassRange> classes;
  // Feed::index_extent: an index beyond it is such an error, too.
  int64_t index_extent = 0;
  std::string column;
};

// Throws Error(kConfig): the column has no images, for which this transform is (IsImageStep).
[[noreturn]] void RefuseImageStep(const std::string& column, const std::string& transform);

// A row has the same bits as in a column in memory (Dataset::Fit, Transform::Apply), and reading it throws the same errors for its numbers,
// without a place.
std::shared_ptr<const RowSource> MakeStoredRows(StoredArray array, StoredRowsOptions options);

}  // namespace gradloom
