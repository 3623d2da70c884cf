#include "kernels/cuda/rows/padded_rows.h"

namespace gradloom {
namespace {

int64_t BlockOf(DType dtype) { return kRowAlignmentBytes / DTypeBytes(dtype); }

}  // namespace

bool HasAlignedRows(const OperandType& matrix) { return matrix.shape[1] % BlockOf(matrix.dtype) == 0; }

Layout PaddedRows(DType dtype) { return {.order = {}, .blocks = {{1, BlockOf(dtype)}}}; }

std::optional<int64_t> RowStrideOf(const OperandType& matrix) {
  if (matrix.shape.rank() != 2) return std::nullopt;
  if (matrix.layout.plain() || matrix.layout == PaddedRows(matrix.dtype)) return matrix.layout.Padded(matrix.shape)[1];
  return std::nullopt;
}

}  // namespace gradloom
