// The products that numpy.matmul is made of.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/shape.h"

namespace gradloom {

// Products of matrices m x k and k x n. Vectors stand for a row on the left and for a column on the right; leading axes broadcast.
struct BatchedProduct {
  int64_t m, n, k;
  Shape batch;
  std::vector<int64_t> a_strides, b_strides;  // along the axes of the batch, in matrices

  // Of operands and result of a valid product.
  BatchedProduct(const Shape& a, const Shape& b, const Shape& out);
};

}  // namespace gradloom
