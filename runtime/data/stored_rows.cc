#include "runtime/data/stored_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/data/image_step_names.h"
#include "runtime/data/value_rules.h"

namespace gradloom {
namespace {

void SwapBytes(Tensor& tensor) {
  const int64_t width = DTypeBytes(tensor.dtype());
  auto* bytes = static_cast<char*>(tensor.data());
  for (int64_t i = 0; width > 1 && i < tensor.bytes(); i += width) std::reverse(bytes + i, bytes + i + width);
}

class StoredRows : public RowSource {
 public:
  StoredRows(StoredArray array, StoredRowsOptions options)
      : array_(std::make_shared<const StoredArray>(std::move(array))), options_(std::move(options)) {}

  int64_t rows() const override { return options_.rows; }
  Shape row_shape() const override { return options_.row_shape; }
  DType dtype() const override { return options_.dtype; }

  void Read(int64_t row, PhiloxKey draw, void* out) const override { ReadSeveral(row, 1, draw, out); }

  void ReadSeveral(int64_t row, int64_t count, PhiloxKey, void* out) const override {
    const int64_t width = options_.row_shape.elements();
    Shape shape{count};
    for (const int64_t extent : options_.row_shape) shape.push_back(extent);
    Tensor raw(array_->dtype, shape);
    const int64_t first = options_.first + row * width;
    array_->read(first * DTypeBytes(array_->dtype), raw.data(), raw.bytes());
    if (array_->big_endian) SwapBytes(raw);
    if (array_->dtype == DType::kBool) {
      // Any other value in a bool is undefined behaviour.
      auto* element = static_cast<unsigned char*>(raw.data());
      for (int64_t i = 0; i < raw.elements(); ++i) element[i] = element[i] != 0;
    }
    Tensor value;
    if (raw.dtype() == options_.dtype) {
      value = std::move(raw);
    } else {
      value = Converted(raw.view(), options_.dtype);
      CheckNotTooLarge(options_.column, raw.view(), value.view(), width, row);
      CheckSameNumbers(options_.column, raw.view(), value.view(), width, row);
    }
    if (options_.classes) CheckClasses(row, value);
    CheckIndices(options_.index_extent, options_.column, value.view(), row, "");
    for (const Transform& transform : transforms_) transform.Apply(value);
    std::memcpy(out, value.data(), static_cast<size_t>(value.bytes()));
  }

  Transform Fitted(const std::string& text, std::span<const int64_t> rows) const override {
    if (IsImageStep(text)) RefuseImageStep(options_.column, text);
    return Transform::IsMeasured(text) ? Transform::Measured(text, *this, rows) : Parsed(text);
  }

  std::shared_ptr<const RowSource> With(const Transform& given, bool training) const override {
    // Transforms written for images may also apply to arrays. Those that evaluate have the model's size already.
    if (!training && IsImageStep(given.row_transform)) return std::make_shared<StoredRows>(*this);
    const Transform transform = given.row_transform.empty() ? given : Parsed(given.row_transform);
    Tensor row(options_.dtype, WithRows(Shape{1}, 1));
    transform.Apply(row);  // throws for transforms that do not apply to rows
    auto with = std::make_shared<StoredRows>(*this);
    with->transforms_.push_back(transform);
    return with;
  }

 private:
  // One that is not measured.
  Transform Parsed(const std::string& text) const {
    Shape shape{1};
    for (const int64_t extent : options_.row_shape) shape.push_back(extent);
    return Transform::Parse(text, Tensor(DType::kFloat32, shape));
  }

  void CheckClasses(int64_t row, const Tensor& value) const {
    const int64_t wrong = FirstOutOfRange(value.view(), *options_.classes);
    if (wrong < 0) return;
    row += wrong / std::max<int64_t>(options_.row_shape.elements(), 1);
    throw ClassError(row, ElementAsInt(value.view(), wrong), options_.column, *options_.classes, "");
  }

  std::shared_ptr<const StoredArray> array_;
  StoredRowsOptions options_;
  std::vector<Transform> transforms_;
};

}  // namespace

void RefuseImageStep(const std::string& column, const std::string& transform) {
  throw Error(ErrorCode::kConfig,
              "the transform '" + Escaped(transform) + "' is for images, but '" + Escaped(column) + "' is read from an array or a table",
              "--transform", "arrays and tables have 'scale 1/255', 'normalize MEAN STD', 'standardize', 'fill mean' and 'fill 0'");
}

std::shared_ptr<const RowSource> MakeStoredRows(StoredArray array, StoredRowsOptions options) {
  return std::make_shared<StoredRows>(std::move(array), std::move(options));
}

}  // namespace gradloom
