// Conversion to and from integers or narrow floats with a scale, and products of quantized operands.
#include "kernels/cuda/rows/rows.h"
#include "runtime/base/narrow.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string NoNumber(const OperandType& operand) {
  return IsFloating(operand.dtype) || IsInteger(operand.dtype) || IsNarrow(operand.dtype)
             ? ""
             : "elements of type " + std::string(DTypeName(operand.dtype));
}

// A scale per tensor, per index along an axis, or per block along an axis.
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
    if (std::string why = input.present() ? NoNumber(input) : ""; !why.empty()) return why;
  }
  return FirstOf({Layouts(call), NoNumber(call.outputs[0]), ScaleFits(call) ? "" : "a scale that does not fit"});
}

bool IsByte(const OperandType& operand) { return operand.dtype == DType::kInt8 || operand.dtype == DType::kUint8; }

OperandType Input(const KernelCall& call, size_t i) { return i < call.inputs.size() ? call.inputs[i] : OperandType{}; }

// Operand i must be a scalar, a vector along axis `axis` of `to`, or broadcastable to `to` as in numpy. It must have extent 1 along the
// axis that is summed, counted from the end (0: no axis is summed).
bool IsBroadcastable(const KernelCall& call, size_t i, const Shape& to, int axis, int summed) {
  const Shape from = Input(call, i).shape;
  if (!Input(call, i).present() || from.elements() == 1) return true;
  if (from.rank() == 1) return from[0] == to[axis];
  if (from.rank() > to.rank() || (summed > 0 && from[from.rank() - summed] != 1)) return false;
  for (int k = 1; k <= from.rank(); ++k) {
    if (from[from.rank() - k] != 1 && from[from.rank() - k] != to[to.rank() - k]) return false;
  }
  return true;
}

// An operand of 8-bit elements, and its zero point.
std::string RejectsBytes(const KernelCall& call, size_t operand, size_t zero) {
  if (!IsByte(call.inputs[operand])) return "elements of type " + std::string(DTypeName(call.inputs[operand].dtype));
  return !Input(call, zero).present() || Input(call, zero).dtype == call.inputs[operand].dtype ? "" : "zero points of another type";
}

// The operands common to QLinearMatMul and QLinearConv: a and b, each followed by its scale and zero point, then scale and zero point of y.
std::string RejectsScaled(const KernelCall& call) {
  if (std::string why = FirstOf({Layouts(call), RankAbove(call, kMaxAxes), RejectsBytes(call, 0, 2), RejectsBytes(call, 3, 5)});
      !why.empty())
    return why;
  if (!IsByte(call.outputs[0]) || call.inputs[7].dtype != call.outputs[0].dtype) return "a result other than bytes";
  return FirstOf({NotFloating(call, 1), NotFloating(call, 4), NotFloating(call, 6)});
}

std::string RejectsMatMul(const KernelCall& call) {
  if (std::string why = RejectsScaled(call); !why.empty()) return why;
  const Shape& y = call.outputs[0].shape;
  if (call.inputs[0].shape.rank() < 2 || call.inputs[3].shape.rank() < 2) return "vectors";
  const int rows = y.rank() - 2, columns = y.rank() - 1;
  bool fits = true;
  for (size_t i : {1, 2}) fits = fits && IsBroadcastable(call, i, y, rows, 1);
  for (size_t i : {4, 5}) fits = fits && IsBroadcastable(call, i, y, columns, 2);
  for (size_t i : {6, 7}) fits = fits && IsBroadcastable(call, i, y, rows, 0);
  return fits ? "" : "scales or zero points that do not fit";
}

// x has a single zero point; w has a single one, or one per filter.
std::string RejectsPadded(const KernelCall& call, size_t x_zero, size_t w_zero) {
  const Shape& y = call.outputs[0].shape;
  if (y.rank() < 3 || y.rank() > 5) return "rank";
  const bool single = !Input(call, x_zero).present() || Input(call, x_zero).shape.elements() == 1;
  return single && Input(call, w_zero).shape.rank() <= 1 && IsBroadcastable(call, w_zero, y, 1, 0) ? "" : "zero points that do not fit";
}

std::string RejectsConv(const KernelCall& call) {
  if (std::string why = FirstOf({RejectsScaled(call), RejectsPadded(call, 2, 5)}); !why.empty()) return why;
  if (Input(call, 8).present() && Input(call, 8).dtype != DType::kInt32) return "a bias other than int32";
  bool fits = true;
  for (size_t i : {1, 4, 6, 7}) fits = fits && Input(call, i).shape.rank() <= 1 && IsBroadcastable(call, i, call.outputs[0].shape, 1, 0);
  return fits ? "" : "scales or zero points that do not fit";
}

std::string RejectsConvInteger(const KernelCall& call) {
  return FirstOf({Layouts(call), RejectsBytes(call, 0, 2), RejectsBytes(call, 1, 3), RejectsPadded(call, 2, 3)});
}

constexpr KernelRow kRows[] = {
    {.name = "cuda.ConvInteger", .op = "ConvInteger", .domain = "", .device = DeviceKind::kCuda, .rejects = RejectsConvInteger},
    {.name = "cuda.DequantizeLinear", .op = "DequantizeLinear", .domain = "", .device = DeviceKind::kCuda, .rejects = Rejects},
    {.name = "cuda.QLinearConv", .op = "QLinearConv", .domain = "", .device = DeviceKind::kCuda, .rejects = RejectsConv},
    {.name = "cuda.QLinearMatMul", .op = "QLinearMatMul", .domain = "", .device = DeviceKind::kCuda, .rejects = RejectsMatMul},
    {.name = "cuda.QuantizeLinear", .op = "QuantizeLinear", .domain = "", .device = DeviceKind::kCuda, .rejects = Rejects},
};

}  // namespace

std::span<const KernelRow> CudaQuantizedRows() { return kRows; }

}  // namespace gradloom
