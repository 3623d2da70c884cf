// Convolutions in every direction without a library, for calls that cuDNN does not serve.
#include "kernels/catalog/convolution.h"

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

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.name = name, .op = op, .domain = domain, .device = DeviceKind::kCuda, .rejects = Rejects};
}

constexpr KernelRow kRows[] = {
    Row("cuda.Conv", "Conv", ""),
    Row("cuda.ConvTranspose", "ConvTranspose", ""),
    Row("cuda.gradloom.ConvGradInput", "ConvGradInput", "gradloom"),
    Row("cuda.gradloom.ConvGradWeight", "ConvGradWeight", "gradloom"),
};

}  // namespace

std::span<const KernelRow> CudaConvolutionRows() { return kRows; }

}  // namespace gradloom
