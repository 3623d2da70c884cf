// Convolutions in every direction without a library, for calls that cuDNN does not serve, and small gradients of weights.
#include "kernels/catalog/convolution.h"

#include <algorithm>

#include "kernels/catalog/physical.h"
#include "kernels/cuda/rows/convolution.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

// Each of the three operands must be row-major, or have its channels innermost, padded or not.
std::string OtherLayouts(const KernelCall& call) {
  const ConvolutionOperands operands = ConvolutionOperandsOf(call);
  for (const OperandType* operand : {operands.x, operands.w, operands.y}) {
    if (!SameMemoryOrder(operand->layout, {}, operand->shape) && !InnermostChannels(*operand))
      return "layout " + operand->layout.ToString();
  }
  const bool plain_bias = call.inputs.size() < 3 || call.inputs[2].layout.plain();
  return plain_bias ? "" : "layout " + call.inputs[2].layout.ToString();
}

std::string Rejects(const KernelCall& call) {
  const int rank = call.inputs[0].shape.rank();
  if (rank < 3 || rank > 5) return "rank " + std::to_string(rank);
  return FirstOf({OtherLayouts(call), NotFloating(call)});
}

// On an H200, cuDNN's float32 gradients of LeNet's weights take about 0.13 ms each, for 7.5 and 15 million multiplications (2026-11-27).
// Gradloom's kernel loads at least five operands for four multiplications. Even at a quarter of the rate at which the multiprocessors could
// do this, twice as many are faster.
constexpr int64_t kSmall = int64_t{1} << 25;

std::string RejectsSmall(const KernelCall& call) {
  if (std::string why = Rejects(call); !why.empty()) return why;
  const ConvolutionOperands operands = ConvolutionOperandsOf(call);
  for (const OperandType* operand : {operands.x, operands.w, operands.y}) {
    if (operand->dtype != DType::kFloat32) return std::string(DTypeName(operand->dtype));
    if (!SameMemoryOrder(operand->layout, {}, operand->shape)) return "layout " + operand->layout.ToString();
  }
  const Shape &w = operands.w->shape, &y = operands.y->shape;
  const int64_t windows = y.elements() / std::max<int64_t>(y[1], 1);
  return w.elements() <= kSmall / std::max<int64_t>(windows, 1) ? "" : "more than 2^25 multiplications";
}

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.name = name, .op = op, .domain = domain, .device = DeviceKind::kCuda, .rejects = Rejects};
}

constexpr KernelRow WeightRow(std::string_view name, std::string (*rejects)(const KernelCall&)) {
  return {.name = name,
          .op = "ConvGradWeight",
          .domain = "gradloom",
          .device = DeviceKind::kCuda,
          .rejects = rejects,
          .scratch_bytes = WeightGradientScratchBytes};
}

constexpr KernelRow kRows[] = {
    Row("cuda.Conv", "Conv", ""),
    Row("cuda.ConvTranspose", "ConvTranspose", ""),
    Row("cuda.gradloom.ConvGradInput", "ConvGradInput", "gradloom"),
    WeightRow("cuda.gradloom.ConvGradWeight", Rejects),
};

constexpr KernelRow kSmallRows[] = {WeightRow("cuda.small.gradloom.ConvGradWeight", RejectsSmall)};

}  // namespace

WeightGradientParts WeightGradientPartsOf(const KernelCall& call) {
  // Enough threads for a large GPU, each with enough windows that the sums of the parts cost little.
  constexpr int64_t kThreads = 1 << 16, kMinWindows = 128;
  const ConvolutionOperands operands = ConvolutionOperandsOf(call);
  const Shape &w = operands.w->shape, &y = operands.y->shape;
  const int64_t row = y[y.rank() - 1], of_group = w[0] / call.attributes.Int("group", 1);
  WeightGradientParts p;
  for (const int64_t filters : {2, 4}) {
    if (of_group % filters == 0) p.filters = filters;
  }
  p.threads = w.elements() / p.filters;
  p.rows = row == 0 || y[1] == 0 ? 0 : y.elements() / y[1] / row;
  const int64_t most = std::min(p.rows, p.rows * row / kMinWindows);
  p.parts = std::max<int64_t>(std::min(kThreads / std::max<int64_t>(p.threads, 1), most), 1);
  return p;
}

std::span<const KernelRow> CudaSmallConvRows() { return kSmallRows; }

std::span<const KernelRow> CudaConvolutionRows() { return kRows; }

int64_t WeightGradientScratchBytes(const KernelCall& call) {
  const WeightGradientParts p = WeightGradientPartsOf(call);
  return p.parts > 1 ? p.parts * p.weights() * std::max<int64_t>(DTypeBytes(call.outputs[0].dtype), 4) : 0;
}

}  // namespace gradloom
