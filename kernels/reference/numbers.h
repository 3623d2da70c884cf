// Operands converted to double, for operators whose operands are small. Exact for all element types, except int64 beyond 2^53.
#pragma once

#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/narrow.h"

namespace gradloom {

using Numbers = std::vector<double>;

// The elements of input i.
Numbers NumbersOf(const KernelCall& call, const void* const* in, size_t i);

// Writes numbers as the elements of output i, rounded to its type. Integers are clamped to their range.
void StoreNumbers(const KernelCall& call, size_t i, const Numbers& numbers, void* const* out, NarrowRounding rounding = {});

// A number, rounded to a floating-point type.
double RoundedTo(DType dtype, double value);

}  // namespace gradloom
