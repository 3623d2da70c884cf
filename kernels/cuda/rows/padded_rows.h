// Matrices whose rows are padded to a multiple of 16 bytes. Tensor cores need that alignment: on an H200, a product in bfloat16 whose
// result has rows of 50,257 elements took seven times as long as one with aligned rows (2026-11-27).
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/catalog/kernel.h"

namespace gradloom {

inline constexpr int64_t kRowAlignmentBytes = 16;

// Whether every row of a matrix, stored without padding, starts at a multiple of kRowAlignmentBytes.
bool HasAlignedRows(const OperandType& matrix);

// Row-major with padding after each row: rows in blocks of kRowAlignmentBytes.
Layout PaddedRows(DType dtype);

// The elements from one row of a matrix to the next, for plain layouts and PaddedRows; nullopt for others.
std::optional<int64_t> RowStrideOf(const OperandType& matrix);

}  // namespace gradloom
