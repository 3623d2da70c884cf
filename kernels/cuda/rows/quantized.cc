// Numbers as small integers times a scale.
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: the reasons below are its

// A type that is none of those whose elements a kernel reads one by one.
std::string Narrow(const OperandType& operand) {
  return IsFloating(operand.dtype) || IsInteger(operand.dtype) ? "" : "elements of type " + std::string(DTypeName(operand.dtype));
}

// One number for all, one for each place of an axis, or one for each block of an axis.
bool ScaleFits(const KernelCall& call) {
  const Shape &x = call.inputs[0].shape, &scale = call.inputs[1].shape;
  if (call.inputs.size() > 2 && call.inputs[2].present() && call.inputs[2].shape.elements() != scale.elements()) return false;
  if (scale.elements() == 1) return true;
  const auto axis = NormalAxis(call.attributes.Int("axis", 1), x.rank());
  const int64_t block = call.attributes.Int("block_size", 0);
  if (!axis || block < 0) return false;
  if (block == 0) return scale == Shape{x[*axis]};
  Shape wanted = x;
  wanted[*axis] = (x[*axis] + block - 1) / block;
  return scale == wanted;
}

std::string Rejects(const KernelCall& call) {
  for (const OperandType& input : call.inputs) {
    if (std::string why = input.present() ? Narrow(input) : ""; !why.empty()) return why;
  }
  return FirstOf({Layouts(call), Narrow(call.outputs[0]), ScaleFits(call) ? "" : "a scale that does not fit"});
}

constexpr KernelRow kRows[] = {
    {.name = "cuda.DequantizeLinear", .op = "DequantizeLinear", .domain = "", .device = DeviceKind::kCuda, .rejects = Rejects},
    {.name = "cuda.QuantizeLinear", .op = "QuantizeLinear", .domain = "", .device = DeviceKind::kCuda, .rejects = Rejects},
};

}  // namespace

std::span<const KernelRow> CudaQuantizedRows() { return kRows; }

}  // namespace gradloom
