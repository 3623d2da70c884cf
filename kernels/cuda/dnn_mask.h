// Attention masks as cuDNN takes them.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"

struct CUstream_st;

namespace gradloom::cuda {

// What is to be added to scores, in 16 bits: `mask` itself, or of truth values 0 for true. What hides a key is the lowest finite number,
// not minus infinity: a query that sees no key has some mean of the values then, and no NaN that would spread.
void WriteDnnMask(DType mask_dtype, const void* mask, int64_t elements, DType dtype, void* out, CUstream_st* stream);

}  // namespace gradloom::cuda
