// Training data in memory: named columns with one row per sample, and the batches made of them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/tensor.h"

namespace gradloom {

// A table of tensors whose first dimension is the sample. Column names are those of the model's inputs and
// targets. Later sources (images, tokens) fill columns row by row; here all rows are in memory.
class Dataset {
 public:
  Dataset() = default;
  // Throws Error(kData) where row counts differ (naming both columns) or a column has no dimension.
  explicit Dataset(std::map<std::string, Tensor> columns);

  int64_t rows() const { return rows_; }
  const std::map<std::string, Tensor>& columns() const { return columns_; }
  bool has(std::string_view name) const { return columns_.contains(std::string(name)); }

  // Throws Error(kData) naming the columns there are.
  const Tensor& column(std::string_view name) const;
  void set_column(const std::string& name, Tensor column);

  // The given rows, copied.
  Dataset Select(std::span<const int64_t> rows) const;

  // The column as the model wants it: converted where no value is lost that training could miss (integers to
  // floating, float64 to float32, whole floating numbers to integers) and reshaped row by row where the
  // element counts agree. `row_shape` is the wanted shape without the first dimension. Throws Error(kData)
  // naming column, row and value otherwise.
  void Fit(const std::string& name, DType dtype, const Shape& row_shape);

 private:
  std::map<std::string, Tensor> columns_;
  int64_t rows_ = 0;
};

// 0 .. rows-1 in an order that depends on nothing but seed and epoch (Fisher and Yates, by Philox).
std::vector<int64_t> ShuffledRows(int64_t rows, uint64_t seed, uint64_t epoch);

struct Split {
  std::vector<int64_t> train, eval;
};

// Holds back a share of the rows: a seeded random one, or the last ones unshuffled. At least one row stays
// on each side. Throws Error(kConfig) where fraction is not within (0, 1) or there is but one row.
Split RandomSplit(int64_t rows, double fraction, uint64_t seed);
Split TailSplit(int64_t rows, double fraction);

// A fixed arithmetic change of a floating column: (x - shift) * scale, by element of a row or for all.
struct Transform {
  std::vector<float> shift, scale;  // one entry, or one per element of a row

  // "scale 1/255", "normalize MEAN STD" (lists per channel: "normalize 0.5,0.4 0.2,0.2" over the first
  // dimension of a row), or "standardize": mean 0 and variance 1 by element, measured on `fitted_on`
  // (elements that never change are only shifted). Throws Error(kConfig).
  static Transform Parse(std::string_view text, const Tensor& fitted_on);

  // Throws Error(kData) for a column that is not float32.
  void Apply(Tensor& column) const;
};

// The batches of an epoch, one after the other, in buffers of its own.
class Batches {
 public:
  // `order`: the rows of the epoch. The last batch has what is left. Both must outlive this object.
  Batches(const Dataset& data, std::span<const int64_t> order, int64_t batch);

  int64_t count() const;              // batches of the epoch
  int64_t size(int64_t index) const;  // rows of one

  // Batch `index`, valid until the next call.
  std::map<std::string, TensorView, std::less<>> Get(int64_t index);

 private:
  const Dataset& data_;
  std::span<const int64_t> order_;
  int64_t batch_;
  std::map<std::string, Tensor> buffers_;  // of a full batch
};

// The sizes that batches of this size have over `rows` rows: the full one and, if there is a rest, the last.
std::vector<int64_t> BatchSizes(int64_t rows, int64_t batch);

}  // namespace gradloom
