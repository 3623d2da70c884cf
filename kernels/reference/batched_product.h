// The matrix products of numpy.matmul.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/shape.h"

namespace gradloom {

// Products of matrices m x k and k x n. A vector is a row on the left and a column on the right; leading axes broadcast.
struct BatchedProduct {
  int64_t m, n, k;
  Shape batch;
  std::vector<int64_t> a_strides, b_strides;  // along the batch axes, in matrices

  // The operands and the result must form a valid product.
  BatchedProduct(const Shape& a, const Shape& b, const Shape& out);
};

}  // namespace gradloom
