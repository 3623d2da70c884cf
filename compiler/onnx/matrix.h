// Matrices among the tensors of a file. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/tensor.h"

namespace gradloom {

// Reads a tensor of rank 2, which is borrowed, by row and column.
class Matrix {
 public:
  explicit Matrix(const Tensor& data)
      : bytes_(static_cast<const char*>(data.data())), rows_(data.shape()[0]), columns_(data.shape()[1]), size_(DTypeBytes(data.dtype())) {}

  // The bytes of an element.
  std::string_view At(int64_t row, int64_t column) const {
    return {bytes_ + (row * columns_ + column) * size_, static_cast<size_t>(size_)};
  }

  // Some elements at places that depend on the extents only, from all over the matrix, which must have elements. `transposed`: those of its
  // transpose. Different samples are of different matrices.
  std::string Sample(bool transposed) const;

  // Whether its first elements differ enough to tell matrices apart, unlike those of zeros or an identity.
  bool Varies() const;

  bool IsTransposeOf(const Matrix& other) const;

 private:
  const char* bytes_;
  int64_t rows_, columns_, size_;
};

// Throws Error(kResource) if there is no memory for it.
Tensor Transposed(const Tensor& matrix);

}  // namespace gradloom
