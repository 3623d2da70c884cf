// Elements of any type as double, including the narrow types of runtime/base/narrow.h.
#pragma once

#include "kernels/cuda/convert.cuh"
#include "runtime/base/narrow.h"

namespace gradloom::cuda {

GRADLOOM_DEVICE double LoadNumber(const void* data, DType dtype, int64_t i) {
  if (IsNarrow(dtype)) return NarrowValue(dtype, static_cast<const uint8_t*>(data)[i]);
  return LoadAs<double>(data, dtype, i);
}

GRADLOOM_DEVICE void StoreNumber(void* data, DType dtype, int64_t i, double value, const NarrowRounding& rounding) {
  if (IsNarrow(dtype))
    static_cast<uint8_t*>(data)[i] = NarrowElement(dtype, value, rounding);
  else
    StoreAs(data, dtype, i, value);
}

}  // namespace gradloom::cuda
