// Matrices whose rows are padded to a multiple of 16 bytes. Tensor cores need that alignment: on an H200, a product in bfloat16 whose
// result has rows of 50,257 elements took seven times as long as one with aligned rows (2026-11-27).
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/catalog/kernel.h"

namespace gradloom {

inline constexpr int64_t kRowAlignmentBytes = 16;

// Whether every row of a tensor of rank 1 or more, stored without padding, starts at a multiple of kRowAlignmentBytes. A row is what the
// last dimension holds.
bool HasAlignedRows(const OperandType& rows);

// Row-major with padding after each row of a tensor of this rank: rows in blocks of kRowAlignmentBytes.
Layout PaddedRows(DType dtype, int rank = 2);

// Whether the innermost part of a layout is its only block, and has kRowAlignmentBytes.
bool HasWordBlock(const OperandType& operand);

// The elements from one row of a tensor of rank 1 or more to the next, for row-major layouts whose rows are not padded, or padded to a
// multiple of kRowAlignmentBytes: those of PaddedRows, and wider ones (float32 weights have the padding of their 16-bit copies). nullopt
// for other layouts.
std::optional<int64_t> RowStrideOf(const OperandType& rows);

// For a pointwise call: the elements from one row of the results to the next, if all results and the operands of their shape have rows with
// the same padding, and all other operands, which are broadcast, are row-major. nullopt for other layouts.
std::optional<int64_t> PaddedPointwiseStride(const KernelCall& call);

}  // namespace gradloom
