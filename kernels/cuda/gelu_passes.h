// The epilogues of a product as separate passes over its result, for problems where cuBLASLt has no such epilogue.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"

struct CUstream_st;

namespace gradloom::cuda {

// For all i < n, of a floating-point type. GELU is the tanh approximation.
void ReluInPlace(DType dtype, int64_t n, void* y, CUstream_st* stream);                            // y[i] = max(y[i], 0); NaN stays NaN
void GeluPass(DType dtype, int64_t n, const void* x, void* y, CUstream_st* stream);                // y[i] = gelu(x[i])
void GeluGradInPlace(DType dtype, int64_t n, const void* x, void* gradient, CUstream_st* stream);  // gradient[i] *= gelu'(x[i])

}  // namespace gradloom::cuda
