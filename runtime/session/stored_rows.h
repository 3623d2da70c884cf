// Rows of a data set that stay in their file until they are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/session/dataset.h"
#include "runtime/session/stored_array.h"

namespace gradloom {

struct StoredRowsOptions {
  DType dtype = DType::kFloat32;  // wanted of a row, and its shape; see CanBeStored
  Shape row_shape;
  int64_t rows = 0;
  // Of row i the elements from first + i * row_shape.elements() on.
  int64_t first = 0;
  // Classes 0 to count-1, and one that stands for none: a row with others is Error(kData), which names the row and `column`.
  struct Classes {
    int64_t count = 0, ignored = -1;
  };
  std::optional<Classes> classes;
  std::string column;
};

// Whether elements of a file become those wanted without a look at their values: floating ones of all numbers, int64 of whole numbers that
// cannot be larger.
bool CanBeStored(DType have, DType wanted);

// The bits of a row are those that a column in memory has of it (Dataset::Fit, Transform::Apply).
std::shared_ptr<const RowSource> MakeStoredRows(StoredArray array, StoredRowsOptions options);

}  // namespace gradloom
