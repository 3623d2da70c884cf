#include "kernels/cuda/rows/rows.h"

#include <vector>

#include "kernels/catalog/backends.h"
#include "kernels/catalog/physical.h"

namespace gradloom {
namespace {

using Rows = std::span<const KernelRow> (*)();

// If two families serve the same operator, the first is tried first. One family per line.
// clang-format off
constexpr Rows kFamilies[] = {
    CudaPointwiseRows,
    CudaBlasRows,
    CudaElementwiseRows,
    CudaMoveRows,
    CudaIndexRows,
    CudaReduceRows,
    CudaScanRows,
    CudaSoftmaxRows,
    CudaNormalizationRows,
    CudaBatchNormRows,
    CudaLossRows,
    CudaOptimizerRows,
    CudaRandomRows,
    CudaProductRows,
    CudaSmallConvRows,
    CudaDnnConvRows,
    CudaConvolutionRows,
    CudaPoolingRows,
    CudaSampleRows,
    CudaDnnAttentionRows,
    CudaAttentionBlasRows,
    CudaAttentionRows,
    CudaRecurrentBlasRows,
    CudaRecurrentRows,
    CudaLinearAlgebraRows,
    CudaQuantizedRows,
    CudaTensorScatterRows,
    CudaTrainingRows,
    CudaUnfoldRows,
    CudaDeformConvRows,
    CudaExtentRows,
    CudaNarrowRows,
    CudaRegionRows,
    CudaSignalRows,
    CudaTraditionalRows,
};
// clang-format on

}  // namespace

std::vector<const KernelRow*> CudaKernelRows() {
  std::vector<const KernelRow*> rows;
  for (Rows family : kFamilies) {
    for (const KernelRow& row : family()) rows.push_back(&row);
  }
  return rows;
}

namespace cuda_rows {

std::string Layouts(const KernelCall& call) {
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (!operand.layout.plain()) return "layout " + operand.layout.ToString();
    }
  }
  return "";
}

bool HasChannelsLast(const KernelCall& call, int rank) {
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (operand.present() && operand.shape.rank() == rank && !SameMemoryOrder(operand.layout, {}, operand.shape)) return true;
    }
  }
  return false;
}

std::string ChannelOrders(const KernelCall& call, int rank) {
  const Layout order = HasChannelsLast(call, rank) ? ChannelsLast(rank) : Layout{};
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      const Layout& expected = operand.shape.rank() == rank ? order : Layout{};
      if (operand.present() && !SameMemoryOrder(operand.layout, expected, operand.shape)) return "layout " + operand.layout.ToString();
    }
  }
  return "";
}

std::string Unknown(const KernelCall& call, std::initializer_list<size_t> inputs) {
  for (size_t i : inputs) {
    if (!call.IsKnown(i)) return "input " + std::to_string(i) + " is not a constant";
  }
  return "";
}

std::string NotFloating(const KernelCall& call, size_t input) {
  return input < call.inputs.size() && IsFloating(call.inputs[input].dtype) ? "" : "elements that are not floating-point";
}

std::string RankAbove(const KernelCall& call, int rank) {
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (operand.shape.rank() > rank) return "rank " + std::to_string(operand.shape.rank());
    }
  }
  return "";
}

std::string FirstOf(std::initializer_list<std::string> reasons) {
  for (const std::string& reason : reasons) {
    if (!reason.empty()) return reason;
  }
  return "";
}

}  // namespace cuda_rows
}  // namespace gradloom
