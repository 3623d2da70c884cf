// Operands as double, whatever their type, for operators that are seldom large. Every element type but int64 beyond 2^53 is exact.
#pragma once

#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/narrow.h"

namespace gradloom {

using Numbers = std::vector<double>;

// The elements of input i.
Numbers NumbersOf(const KernelCall& call, const void* const* in, size_t i);

// Writes numbers as the elements of output i, rounded to its type; integers are held in their range.
void StoreNumbers(const KernelCall& call, size_t i, const Numbers& numbers, void* const* out, NarrowRounding rounding = {});

// A number, rounded to an element of a floating type.
double RoundedTo(DType dtype, double value);

}  // namespace gradloom
