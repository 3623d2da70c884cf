// Data sets: named columns with one row per sample, and functions to split and shuffle them.
#pragma once

#include <cstdint>
#include <functional>
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

// Rows that are made when they are needed, for example images. Any number of threads may use it at once.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual int64_t rows() const = 0;
  virtual Shape row_shape() const = 0;
  virtual DType dtype() const { return DType::kFloat32; }
  // Whether a row takes so long to make that all cores should share them, as images do, which are decoded.
  virtual bool is_slow() const { return false; }

  // Writes one row. Random transforms depend only on `draw` and the row. Throws Error(kData, kIo, kLimit) naming the file.
  virtual void Read(int64_t row, PhiloxKey draw, void* out) const = 0;
  // Writes `count` rows from `row` on, one after the other, with the same bits and errors; much faster for rows of a few bytes in a file.
  virtual void ReadSeveral(int64_t row, int64_t count, PhiloxKey draw, void* out) const;

  // Parses a transform; one that is measured is measured on these rows. Throws Error(kConfig) for an unknown one.
  virtual Transform Fitted(const std::string& text, std::span<const int64_t> rows) const = 0;
  // The same rows with one more transform, which Fitted returned for these or other rows of their kind. Random transforms are left out
  // unless for `training`. Throws Error(kConfig).
  virtual std::shared_ptr<const RowSource> With(const Transform& transform, bool training) const = 0;
};

// Calls `use` with the values of these rows, in their order, several at a time if they follow each other. Without random transforms.
void ForEachPiece(const RowSource& source, std::span<const int64_t> rows, const std::function<void(const TensorView& rows)>& use);

// A table whose first dimension is the sample: tensors in memory, and columns whose rows a source makes. Column names are those of the
// model's inputs and targets.
class Dataset {
 public:
  Dataset() = default;
  // Throws Error(kData) if row counts differ (naming both columns) or a column has no dimension.
  explicit Dataset(std::map<std::string, Tensor> columns);

  int64_t rows() const { return rows_; }
  const std::map<std::string, Tensor>& columns() const { return columns_; }
  bool has(std::string_view name) const { return columns_.contains(std::string(name)) || is_lazy(name); }

  // A column in memory. Throws Error(kData) listing the columns.
  const Tensor& column(std::string_view name) const;
  void set_column(const std::string& name, Tensor column);
  // Removes a column in memory and returns it. Throws like column().
  Tensor TakeColumn(const std::string& name);

  // A column whose rows are made when they are needed.
  struct LazyColumn {
    std::shared_ptr<const RowSource> source;
    std::vector<int64_t> rows;  // of the source
  };
  const std::map<std::string, LazyColumn>& lazy_columns() const { return lazy_columns_; }
  bool is_lazy(std::string_view name) const { return lazy_columns_.contains(std::string(name)); }
  // Adds all rows of a source. If there is a source of this name, replaces it and keeps the selection. Throws like the constructor.
  void set_source(const std::string& name, std::shared_ptr<const RowSource> source);

  // The shape of a row of a column, in memory or not. Throws like column().
  Shape row_shape(const std::string& name) const;

  // The given rows; rows in memory are copied.
  Dataset Select(std::span<const int64_t> rows) const;

  // Converts the column to the dtype and shape that the model needs. Conversions that lose nothing relevant for training are allowed
  // (integers to floating point, float64 to float32, floating-point integers to integers); otherwise throws Error(kData) naming column, row
  // and value. Rows are reshaped if the shapes differ only in ones ([28,28] and [1,28,28], [] and [1]) or, with kFlatRows, if one of them
  // is flat, a row of numbers (Error(kData) if it has too few or too many). Every other shape is Error(kShape) with both. `row_shape`: the
  // shape needed, without the first dimension. A column that is not in memory must have the dtype and shape already.
  enum class Reshaping : uint8_t { kOnes, kFlatRows };
  void Fit(const std::string& name, DType dtype, const Shape& row_shape, Reshaping reshaping = Reshaping::kFlatRows);

 private:
  void CheckRows(const std::string& name, int64_t rows) const;

  std::map<std::string, Tensor> columns_;
  std::map<std::string, LazyColumn> lazy_columns_;
  int64_t rows_ = 0;
};

// If `to` has the numbers of `from` in a floating-point type that may be too narrow for them: throws Error(kData) for the first row with a
// finite number that is not finite any more. `first`: the number of the first row in the data.
void CheckNotTooLarge(const std::string& column, const TensorView& from, const TensorView& to, int64_t row_elements, int64_t first);

// If `to` has the numbers of `from` in a type that is not floating-point: throws Error(kData) for the first row with a number that is
// another one there (2.5, NaN, 300 as uint8). `first` as above.
void CheckSameNumbers(const std::string& column, const TensorView& from, const TensorView& to, int64_t row_elements, int64_t first);

// Whether rows of one shape may be used as rows of the other, by the rules of Dataset::Fit.
bool RowsFit(const Shape& have, const Shape& want, Dataset::Reshaping reshaping);

// The shape of a column with `rows` rows.
Shape WithRows(Shape column, int64_t rows);

// Copies the given rows of a column to `out`, along this axis of the result.
void GatherRows(const Tensor& column, std::span<const int64_t> rows, int axis, void* out);

// Copies a row to its place among `rows` rows that lie along an axis. `block`: the bytes of a row after that axis; it has `bytes`.
void PlaceRow(const void* row, int64_t bytes, int64_t block, int64_t index, int64_t rows, void* out);

// The shape with axis `from` moved to place `to`, and the other axes in their order.
Shape WithAxisMoved(const Shape& shape, int from, int to);

// The tensor with its samples, which lie along this axis, along the first one.
Tensor WithSamplesFirst(const TensorView& tensor, int axis);

// 0 .. rows-1 in an order that depends only on seed and epoch (Fisher and Yates, by Philox).
std::vector<int64_t> ShuffledRows(int64_t rows, uint64_t seed, uint64_t epoch);
// 0 .. rows-1.
std::vector<int64_t> RowsInOrder(int64_t rows);

struct Split {
  std::vector<int64_t> train, eval;
};

// Holds back a share of the rows: a seeded random one, or the last ones unshuffled. At least one row stays on each side. Throws
// Error(kConfig) if fraction is not within (0, 1) or there is only one row.
Split RandomSplit(int64_t rows, double fraction, uint64_t seed);
Split TailSplit(int64_t rows, double fraction);

// A transform of a floating-point column: (x - shift) * scale, per element of a row or for all.
struct Transform {
  std::vector<float> shift, scale;  // one entry, or one per element of a row
  std::vector<float> fill = {};     // if not empty, in the same form: what replaces NaN, before everything else
  // For rows from a source: the text of the transform, which the source interprets (RowSource::With).
  std::string row_transform = {};

  // Parses "scale 1/255", "normalize MEAN STD", "fill NUMBER" (lists per channel: "normalize 0.5,0.4 0.2,0.2" over the first dimension of a
  // row, or over the last of an image), or what is measured on `fitted_on`: "standardize" (mean 0 and variance 1 per element; constant
  // elements are only shifted) and "fill mean" (the mean per element). Only finite numbers are measured; without any, the mean is 0.
  // Throws Error(kConfig).
  static Transform Parse(std::string_view text, const Tensor& fitted_on);

  // Whether it is measured on data.
  static bool IsMeasured(std::string_view text);
  // Whether it replaces missing numbers.
  static bool IsFill(std::string_view text);
  // A measured transform for rows of a source, which are read twice.
  static Transform Measured(std::string_view text, const RowSource& source, std::span<const int64_t> rows);

  // x = (x - shift) * scale for the elements of rows, without what `fill` replaces.
  void ShiftAndScale(std::span<float> rows) const;
  // Throws Error(kData) for a column that is not float32.
  void Apply(Tensor& column) const;
  // The opposite: x / scale + shift, with the arithmetic in double; missing numbers that were filled in stay. Throws Error(kData) like
  // Apply, and for a scale of 0.
  void Undo(Tensor& column) const;
};

// The batch sizes that occur over `rows` rows: the full one and, if there is a rest, the last one.
std::vector<int64_t> BatchSizes(int64_t rows, int64_t batch);

}  // namespace gradloom
