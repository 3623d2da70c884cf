// Training data in memory: named columns with one row per sample, and the batches made of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/philox.h"
#include "runtime/base/tensor.h"

namespace gradloom {

struct Transform;

// Rows that are made when they are needed: images, for one. For any number of threads at once.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual int64_t rows() const = 0;
  virtual Shape row_shape() const = 0;
  virtual DType dtype() const { return DType::kFloat32; }

  // Writes one row. What is random about it depends on `draw` and the row alone. Throws Error(kData, kIo, kLimit)
  // naming the file.
  virtual void Read(int64_t row, PhiloxKey draw, void* out) const = 0;

  // What a transform that is written so is, where it is measured on these rows if it is measured at all. Throws Error(kConfig) for one that
  // does not exist.
  virtual Transform Fitted(const std::string& text, std::span<const int64_t> rows) const = 0;
  // The same rows with one more transform, which Fitted gave for these or other rows of their kind; random ones are left out where they are
  // not for `training`. Throws Error(kConfig).
  virtual std::shared_ptr<const RowSource> With(const Transform& transform, bool training) const = 0;
};

// A table whose first dimension is the sample: tensors in memory, and rows that a source makes. Column names are those
// of the model's inputs and targets.
class Dataset {
 public:
  Dataset() = default;
  // Throws Error(kData) where row counts differ (naming both columns) or a column has no dimension.
  explicit Dataset(std::map<std::string, Tensor> columns);

  int64_t rows() const { return rows_; }
  const std::map<std::string, Tensor>& columns() const { return columns_; }
  bool has(std::string_view name) const { return columns_.contains(std::string(name)) || made(name); }

  // A column in memory. Throws Error(kData) naming the columns there are.
  const Tensor& column(std::string_view name) const;
  void set_column(const std::string& name, Tensor column);
  // A column in memory, which the data set then lacks. Errors as column().
  Tensor TakeColumn(const std::string& name);

  // Columns whose rows are made when they are needed.
  struct MadeColumn {
    std::shared_ptr<const RowSource> source;
    std::vector<int64_t> rows;  // of the source
  };
  const std::map<std::string, MadeColumn>& made_columns() const { return made_; }
  bool made(std::string_view name) const { return made_.contains(std::string(name)); }
  // All rows of a source; replaces the source where there is one of this name and keeps the selection. Throws as the
  // constructor.
  void set_source(const std::string& name, std::shared_ptr<const RowSource> source);

  // The given rows; those in memory are copied.
  Dataset Select(std::span<const int64_t> rows) const;

  // The column as the model wants it: converted where no value is lost that training could miss (integers to
  // floating, float64 to float32, whole floating numbers to integers), Error(kData) naming column, row and value
  // otherwise; and reshaped row by row where only ones are between the shapes ([28,28] and [1,28,28], [] and [1]) or,
  // with kFlatRows, where one of them has no order of its own: a row of numbers (Error(kData) where it has too few or too
  // many). Every other shape is Error(kShape) with both. `row_shape` is the wanted shape without the first dimension.
  enum class Reshaping : uint8_t { kOnes, kFlatRows };
  void Fit(const std::string& name, DType dtype, const Shape& row_shape, Reshaping reshaping = Reshaping::kFlatRows);

 private:
  void CheckRows(const std::string& name, int64_t rows) const;

  std::map<std::string, Tensor> columns_;
  std::map<std::string, MadeColumn> made_;
  int64_t rows_ = 0;
};

// Where `to` has the numbers of `from` in a floating-point type that may be too narrow for them: throws Error(kData) with the first row
// that has a finite number which is none any more. `first`: the number of the first row in the data.
void CheckNotTooLarge(const std::string& column, const TensorView& from, const TensorView& to, int64_t row_elements, int64_t first);

// Whether rows of one shape may be taken for rows of the other, as Dataset::Fit does.
bool RowsFit(const Shape& have, const Shape& want, Dataset::Reshaping reshaping);

// The shape of a column with `rows` rows.
Shape WithRows(Shape column, int64_t rows);

// Copies the given rows of a column to `out`, one after the other.
void GatherRows(const Tensor& column, std::span<const int64_t> rows, void* out);

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
  // Of rows that a source makes: the transform as it was written, which the source knows (RowSource::With).
  std::string row_transform = {};

  // "scale 1/255", "normalize MEAN STD" (lists per channel: "normalize 0.5,0.4 0.2,0.2" over the first
  // dimension of a row), or "standardize": mean 0 and variance 1 by element, measured on `fitted_on`
  // (elements that never change are only shifted). Throws Error(kConfig).
  static Transform Parse(std::string_view text, const Tensor& fitted_on);

  // Whether it is one that is measured: "standardize".
  static bool IsMeasured(std::string_view text);
  // The same for rows that are read twice, one after the other.
  static Transform Standardized(const RowSource& source, std::span<const int64_t> rows);

  // Throws Error(kData) for a column that is not float32.
  void Apply(Tensor& column) const;
};

// The sizes that batches of this size have over `rows` rows: the full one and, if there is a rest, the last.
std::vector<int64_t> BatchSizes(int64_t rows, int64_t batch);

}  // namespace gradloom
