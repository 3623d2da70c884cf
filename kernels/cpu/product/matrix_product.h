// The matrix products of MatMul and Gemm, as extents and strides.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// c[batch, m, n] = alpha a[batch, m, k] b[batch, k, n] + beta bias, as extents and strides in elements. A broadcast batch axis of a or b
// has extent 1. The matrices of an operand are contiguous one after another, and the rows of c are contiguous.
struct MatrixProduct {
  std::vector<int64_t> batch, a_batch, b_batch;
  int64_t m = 1, n = 1, k = 1;
  int64_t a_row = 0, a_col = 0, b_row = 0, b_col = 0;
  bool has_bias = false;
  int64_t bias_row = 0, bias_col = 0;  // strides, 0 where broadcast
  std::vector<int64_t> bias_dims;      // [m or 1, n or 1]
  float alpha = 1, beta = 1;

  // The number of matrices in c.
  int64_t matrices() const;
  // The number of multiply-adds.
  int64_t work() const { return matrices() * m * n * k; }
};

// The product of a call to MatMul or Gemm.
MatrixProduct ProductOf(const KernelCall& call);

}  // namespace gradloom
