// Gradloom's own matrix product, for problems that a library does not support: any element type and layout of BlasProduct, without an
// epilogue.
#pragma once

#include "kernels/cuda/rows/blas.h"

struct CUstream_st;

namespace gradloom::cuda {

// d = alpha a b, plus beta d if the addend is a matrix, which must then be d itself, or plus `row`, if given, in each row. d has the
// operands' type or float32; no float64.
void PlainProduct(const BlasProduct& product, const void* a, const void* b, void* d, CUstream_st* stream, const void* row = nullptr);

// Sets the padding after each row of d to zero, if there is any.
void ZeroRowPadding(const BlasProduct& product, void* d, CUstream_st* stream);

}  // namespace gradloom::cuda
