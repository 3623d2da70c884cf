// What a product's epilogue does, as passes over its result, for where cuBLASLt has no such epilogue.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"

struct CUstream_st;

namespace gradloom::cuda {

// For i < n, of a floating type. GELU is its tanh form.
void ReluInPlace(DType dtype, int64_t n, void* y, CUstream_st* stream);                            // y[i] = max(y[i], 0), NaN where it is
void GeluPass(DType dtype, int64_t n, const void* x, void* y, CUstream_st* stream);                // y[i] = gelu(x[i])
void GeluGradInPlace(DType dtype, int64_t n, const void* x, void* gradient, CUstream_st* stream);  // gradient[i] *= gelu'(x[i])

}  // namespace gradloom::cuda
