// The epilogues of a product as separate passes over its result, where cuBLASLt has no such epilogue or a slow one.
#pragma once

#include <cstdint>

#include "kernels/cuda/rows/slices.h"
#include "runtime/base/dtype.h"

struct CUstream_st;

namespace gradloom::cuda {

// For all i < n, of a floating-point type. GELU is the tanh approximation.
void ReluInPlace(DType dtype, int64_t n, void* y, CUstream_st* stream);              // y[i] = max(y[i], 0); NaN stays NaN
void GeluPass(DType dtype, int64_t n, const void* x, void* y, CUstream_st* stream);  // y[i] = gelu(x[i])

// gradient[i] *= gelu'(x[i]) for the elements of row-major matrices, and, if `sums` is not null, sums[column] = the sum of those products
// before they are rounded. `partials` has shape.partials() elements of `dtype`, or of float32 if that has 16 bits.
void GeluGradInPlace(DType dtype, const ColumnRuns& shape, const void* x, void* gradient, void* partials, void* sums, CUstream_st* stream);

}  // namespace gradloom::cuda
