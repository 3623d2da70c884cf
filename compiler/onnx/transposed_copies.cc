#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/onnx/import.h"
#include "compiler/onnx/model_file.h"

namespace gradloom {
namespace {

constexpr int64_t kSampled = 32;   // elements that are compared first
constexpr size_t kDifferent = 12;  // so many of them must differ, otherwise matrices may be equal by chance: zeros, an identity
constexpr int64_t kFewestElements = 16;

// A matrix, read by row and column.
class Matrix {
 public:
  explicit Matrix(const Tensor& data)
      : bytes_(static_cast<const char*>(data.data())), rows_(data.shape()[0]), columns_(data.shape()[1]), size_(DTypeBytes(data.dtype())) {}

  std::string_view At(int64_t row, int64_t column) const {
    return {bytes_ + (row * columns_ + column) * size_, static_cast<size_t>(size_)};
  }

  // Some elements at places that depend on the extents only, from all over the matrix. `transposed`: those of its transpose.
  std::string Sample(bool transposed) const {
    const int64_t rows = transposed ? columns_ : rows_, columns = transposed ? rows_ : columns_;
    std::string sample = std::to_string(rows) + "x" + std::to_string(columns) + ":";
    for (int64_t i = 0; i < kSampled; ++i) {
      const int64_t row = i * 7919 % rows, column = i * 104'729 / 7 % columns;
      sample += transposed ? At(column, row) : At(row, column);
    }
    return sample;
  }

  bool Varies() const {
    std::set<std::string_view> different;
    for (int64_t i = 0; i < std::min<int64_t>(rows_ * columns_, 4 * kSampled) && different.size() < kDifferent; ++i)
      different.insert(At(i / columns_, i % columns_));
    return different.size() >= kDifferent;
  }

  bool IsTransposeOf(const Matrix& other) const {
    if (rows_ != other.columns_ || columns_ != other.rows_ || size_ != other.size_) return false;
    constexpr int64_t kBlock = 32;  // rows and columns of which both matrices stay in a cache
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

 private:
  const char* bytes_;
  int64_t rows_, columns_, size_;
};

}  // namespace

std::vector<TiedTensor> Model::transposed_copies() const {
  if (file_->tied) return *file_->tied;
  std::vector<std::pair<const ModelTensor*, Matrix>> matrices;
  ForEachTensor(const_cast<onnx::ModelProto&>(file_->proto), [&](const TensorSite& site) {
    if (!site.parameter_like || site.dense == nullptr) return;
    const ModelTensor& tensor = file_->tensors.at(site.dense);
    const Shape& shape = tensor.data.shape();
    if (!IsFloating(tensor.data.dtype()) || DTypeBytes(tensor.data.dtype()) < 2 || shape.rank() != 2) return;
    if (shape[0] < 2 || shape[1] < 2 || shape.elements() < kFewestElements || tensor.data.data() == nullptr) return;
    if (const Matrix matrix(tensor.data); matrix.Varies()) matrices.emplace_back(&tensor, matrix);
  });
  std::vector<TiedTensor> copies;
  std::map<std::string, size_t> sources;  // by sample
  for (size_t i = 0; i < matrices.size(); ++i) {
    const auto& [tensor, matrix] = matrices[i];
    const auto source = sources.find(matrix.Sample(true));
    if (source != sources.end()) {
      const auto& [of, other] = matrices[source->second];
      if (of->data.dtype() == tensor->data.dtype() && matrix.IsTransposeOf(other)) {
        copies.push_back({tensor->name, of->name});
        continue;
      }
    }
    sources.emplace(matrix.Sample(false), i);
  }
  return copies;
}

}  // namespace gradloom
