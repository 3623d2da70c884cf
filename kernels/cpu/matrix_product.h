// What MatMul and Gemm compute, by extents and strides.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// c[batch, m, n] = alpha a[batch, m, k] b[batch, k, n] + beta bias: extents and strides, in elements. A
// broadcast batch axis of a or b has extent 1. Matrices of one operand lie one after another, and the rows of c are contiguous.
struct MatrixProduct {
  std::vector<int64_t> batch, a_batch, b_batch;
  int64_t m = 1, n = 1, k = 1;
  int64_t a_row = 0, a_col = 0, b_row = 0, b_col = 0;
  bool has_bias = false;
  int64_t bias_row = 0, bias_col = 0;  // strides, 0 where repeated
  std::vector<int64_t> bias_dims;      // [m or 1, n or 1]
  float alpha = 1, beta = 1;

  // How many matrices c has.
  int64_t matrices() const;
  // Multiply-adds.
  int64_t work() const { return matrices() * m * n * k; }
};

// Of a call to MatMul or Gemm.
MatrixProduct ProductOf(const KernelCall& call);

}  // namespace gradloom
