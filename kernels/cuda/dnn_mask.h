// Attention masks in the form that cuDNN takes.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"

struct CUstream_st;

namespace gradloom::cuda {

// Writes the addend of the scores in a 16-bit type: `mask` itself, or for a boolean mask, 0 where it is true. A hidden key gets the lowest
// finite number instead of minus infinity, so a query that sees no key yields some mean of the values rather than a NaN.
void WriteDnnMask(DType mask_dtype, const void* mask, int64_t elements, DType dtype, void* out, CUstream_st* stream);

}  // namespace gradloom::cuda
