#include "kernels/cuda/rows/padded_rows.h"

namespace gradloom {
namespace {

int64_t BlockOf(DType dtype) { return kRowAlignmentBytes / DTypeBytes(dtype); }

}  // namespace

bool HasAlignedRows(const OperandType& rows) { return rows.shape[rows.shape.rank() - 1] % BlockOf(rows.dtype) == 0; }

Layout PaddedRows(DType dtype, int rank) { return {.order = {}, .blocks = {{rank - 1, BlockOf(dtype)}}}; }

bool HasWordBlock(const OperandType& operand) {
  const std::vector<Layout::Block>& blocks = operand.layout.blocks;
  return blocks.size() == 1 && blocks[0].size * DTypeBytes(operand.dtype) == kRowAlignmentBytes;
}

std::optional<int64_t> RowStrideOf(const OperandType& rows) {
  const int last = rows.shape.rank() - 1;
  if (last < 0) return std::nullopt;
  const auto& [order, blocks] = rows.layout;
  const bool padded = order.empty() && blocks.size() == 1 && blocks[0].dim == last && blocks[0].size % BlockOf(rows.dtype) == 0;
  return padded || rows.layout.plain() ? std::optional(rows.layout.Padded(rows.shape)[last]) : std::nullopt;
}

std::optional<int64_t> PaddedPointwiseStride(const KernelCall& call) {
  const Shape& shape = call.outputs[0].shape;
  const int last = shape.rank() - 1;
  const Layout& layout = call.outputs[0].layout;
  if (!layout.order.empty() || layout.blocks.size() != 1 || layout.blocks[0].dim != last) return std::nullopt;
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (!operand.present()) continue;
      const bool whole = operand.shape == shape;
      if (whole ? operand.layout != layout : !operand.layout.plain() || operands == &call.outputs) return std::nullopt;
    }
  }
  return layout.Padded(shape)[last];
}

}  // namespace gradloom
