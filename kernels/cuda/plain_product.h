// A product of ours, where a library has none: every type and order that a BlasProduct states, without an epilogue.
#pragma once

#include "kernels/cuda/rows/blas.h"

struct CUstream_st;

namespace gradloom::cuda {

// d = alpha a b, plus beta d where the addend is a matrix, which is d itself then. Results are of the operands' type or float32; no
// float64.
void PlainProduct(const BlasProduct& product, const void* a, const void* b, void* d, CUstream_st* stream);

}  // namespace gradloom::cuda
