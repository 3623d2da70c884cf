// Adds a bias per channel where a library does not.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"

struct CUstream_st;

namespace gradloom::cuda {

// y[i] += bias[i / inner % channels] for i < elements. `inner` is the number of points of a tensor [N, C, ...], or 1 if its channels are
// innermost.
void AddChannelBias(DType dtype, const void* bias, int64_t channels, int64_t inner, int64_t elements, void* y, CUstream_st* stream);

}  // namespace gradloom::cuda
