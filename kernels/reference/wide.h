// Kernels that compute in float32 and float64, for elements of 16 bits.
#pragma once

#include "kernels/reference/reference.h"

namespace gradloom {

// Whether an operand is float16 or bfloat16.
bool HasHalf(const KernelCall& call);

// Runs a kernel on float32 in place of 16-bit elements, and rounds its results once.
void RunWide(const KernelCall& call, const void* const* in, void* const* out, ReferenceFunction run);

// `run`, for float16 and bfloat16 too.
template <ReferenceFunction run>
void Wide(const KernelCall& call, const void* const* in, void* const* out) {
  HasHalf(call) ? RunWide(call, in, out, run) : run(call, in, out);
}

}  // namespace gradloom
