#include "kernels/catalog/convolution.h"

#include <utility>

namespace gradloom {

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

}  // namespace gradloom
