#include "compiler/onnx/matrix.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>

#include "runtime/base/host_memory.h"

namespace gradloom {
namespace {

constexpr int64_t kSampled = 32;
// So many of the first elements must differ.
constexpr size_t kDifferent = 12;
constexpr int64_t kBlock = 32;  // rows and columns of which two matrices stay in a cache

}  // namespace

std::string Matrix::Sample(bool transposed) const {
  const int64_t rows = transposed ? columns_ : rows_, columns = transposed ? rows_ : columns_;
  std::string sample = std::to_string(rows) + "x" + std::to_string(columns) + ":";
  for (int64_t i = 0; i < kSampled; ++i) {
    const int64_t row = i * 7919 % rows, column = i * 104'729 / 7 % columns;
    sample += transposed ? At(column, row) : At(row, column);
  }
  return sample;
}

bool Matrix::Varies() const {
  std::set<std::string_view> different;
  for (int64_t i = 0; i < std::min<int64_t>(rows_ * columns_, 4 * kSampled) && different.size() < kDifferent; ++i)
    different.insert(At(i / columns_, i % columns_));
  return different.size() >= kDifferent;
}

bool Matrix::IsTransposeOf(const Matrix& other) const {
  if (rows_ != other.columns_ || columns_ != other.rows_ || size_ != other.size_) return false;
  for (int64_t row = 0; row < rows_; row += kBlock) {
    for (int64_t column = 0; column < columns_; column += kBlock) {
      for (int64_t r = row; r < std::min(row + kBlock, rows_); ++r) {
        for (int64_t c = column; c < std::min(column + kBlock, columns_); ++c) {
          if (At(r, c) != other.At(c, r)) return false;
        }
      }
    }
  }
  return true;
}

Tensor Transposed(const Tensor& matrix) {
  RequireHostMemory(matrix.bytes(), "a weight in another form", "", "end other programs");
  const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1], size = DTypeBytes(matrix.dtype());
  Tensor transposed(matrix.dtype(), {columns, rows});
  const auto* from = static_cast<const std::byte*>(matrix.data());
  auto* to = static_cast<std::byte*>(transposed.data());
  for (int64_t row = 0; row < rows; row += kBlock) {
    for (int64_t column = 0; column < columns; ++column) {
      for (int64_t r = row; r < std::min(row + kBlock, rows); ++r)
        std::memcpy(to + (column * rows + r) * size, from + (r * columns + column) * size, static_cast<size_t>(size));
    }
  }
  return transposed;
}

}  // namespace gradloom
