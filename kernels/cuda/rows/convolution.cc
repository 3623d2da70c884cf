// Convolutions in every direction: without a library, behind those that have one.
#include "kernels/cuda/rows/convolution.h"

#include "kernels/catalog/physical.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: the reasons below are its

// Each of the three operands is plain or has its channels innermost.
std::string OtherLayouts(const KernelCall& call) {
  const ConvolutionOperands operands = ConvolutionOperandsOf(call);
  for (const OperandType* operand : {operands.x, operands.w, operands.y}) {
    const Layout last = ChannelsLast(operand->shape.rank());
    if (!SamePlaces(operand->layout, {}, operand->shape) && !SamePlaces(operand->layout, last, operand->shape))
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

ConvolutionOperands ConvolutionOperandsOf(const KernelCall& call) {
  const OperandType *in = call.inputs.data(), *out = call.outputs.data();
  if (call.op == "ConvGradWeight") return {in, out, in + 1};
  if (call.op == "Conv") return {in, in + 1, out};
  return {out, in + 1, in};
}

Windows WindowsOfConvolution(const KernelCall& call) {
  const ConvolutionOperands operands = ConvolutionOperandsOf(call);
  const Shape& w = operands.w->shape;
  std::vector<int64_t> kernel(w.begin() + 2, w.end());
  if (call.op == "ConvTranspose") return TransposedWindowsOf(call.attributes, operands.y->shape, operands.x->shape, std::move(kernel));
  return WindowsOf(call.attributes, operands.x->shape, std::move(kernel));
}

std::span<const KernelRow> CudaConvolutionRows() { return kRows; }

}  // namespace gradloom
