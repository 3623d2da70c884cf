// Applies kernels that compute in float32 and float64 to 16-bit elements.
#pragma once

#include "kernels/reference/reference.h"

namespace gradloom {

// Whether an operand is float16 or bfloat16.
bool HasHalf(const KernelCall& call);

// Runs a kernel on float32 copies of 16-bit operands, and rounds its results once.
void RunWide(const KernelCall& call, const void* const* in, void* const* out, ReferenceFunction run);

// `run`, extended to float16 and bfloat16.
template <ReferenceFunction run>
void Wide(const KernelCall& call, const void* const* in, void* const* out) {
  HasHalf(call) ? RunWide(call, in, out, run) : run(call, in, out);
}

}  // namespace gradloom
