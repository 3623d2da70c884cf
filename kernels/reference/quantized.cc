// Conversion to and from integers or narrow floats with a scale, and products of quantized operands. Sums of products are in double, which
// is exact for 8-bit integers.
#include <cmath>
#include <limits>

#include "kernels/reference/families.h"
#include "kernels/reference/numbers.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

// Input `i`, or if it is absent, as many zeros as input `like` has elements.
Numbers NumbersOrZeros(const KernelCall& call, const void* const* in, size_t i, size_t like) {
  if (Has(call.inputs, i)) return NumbersOf(call, in, i);
  return Numbers(static_cast<size_t>(call.inputs[like].shape.elements()), 0.0);
}

[[noreturn]] void ThrowScaleMismatch(const KernelCall& call, const Shape& scale, const Shape& x) {
  throw Error(ErrorCode::kShape, call.op + ": a scale of shape " + scale.ToString() + " does not fit a tensor of shape " + x.ToString());
}

// Maps an element of x to an element of the scale: per tensor, per index along an axis, or per block of `block` indices along it.
class QuantizationGranularity {
 public:
  QuantizationGranularity(const KernelCall& call, const Shape& x, const Shape& scale) {
    if (scale.elements() == 1) return;
    const int axis = AxisOf(call, call.attributes.Int("axis", 1), x.rank());
    const int64_t block = call.attributes.Int("block_size", 0);
    extent_ = x[axis];
    inner_ = Product(x, axis + 1, x.rank());
    if (block == 0) {
      if (scale != Shape{extent_}) ThrowScaleMismatch(call, scale, x);
      return;
    }
    if (block < 0) throw Error(ErrorCode::kAttr, call.op + ": block_size " + std::to_string(block));
    Shape wanted = x;
    wanted[axis] = (extent_ + block - 1) / block;
    if (scale != wanted) ThrowScaleMismatch(call, scale, x);
    block_ = block;
    blocks_ = wanted[axis];
  }

  size_t At(int64_t i) const {
    const int64_t index = i / inner_ % extent_;
    if (block_ == 0) return static_cast<size_t>(index);
    return static_cast<size_t>((i / (inner_ * extent_) * blocks_ + index / block_) * inner_ + i % inner_);
  }

 private:
  int64_t extent_ = 1, inner_ = 1, block_ = 0, blocks_ = 1;
};

void QuantizeLinear(const KernelCall& call, const void* const* in, void* const* out) {
  const OperandType& scale_type = call.inputs[1];
  const Numbers scale = NumbersOf(call, in, 1), zero = NumbersOrZeros(call, in, 2, 1);
  if (zero.size() != scale.size()) ThrowScaleMismatch(call, call.inputs[2].shape, scale_type.shape);
  const QuantizationGranularity granularity(call, call.inputs[0].shape, scale_type.shape);
  const auto given = static_cast<DType>(call.attributes.Int("precision", 0));
  const DType precision = given != DType::kUndefined ? given : scale_type.dtype;
  const bool whole = IsInteger(call.outputs[0].dtype) || IsNarrowInteger(call.outputs[0].dtype);
  Numbers y = NumbersOf(call, in, 0);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t at = granularity.At(static_cast<int64_t>(i));
    const double quotient = RoundedTo(precision, y[i] / scale[at]);
    if (whole && std::isnan(quotient)) {
      y[i] = -std::numeric_limits<double>::infinity();  // the least integer, as in ONNX's reference
    } else {
      y[i] = (whole ? std::nearbyint(quotient) : quotient) + zero[at];
    }
  }
  StoreNumbers(call, 0, y, out, {.saturate = call.attributes.Int("saturate", 1) != 0});
}

void DequantizeLinear(const KernelCall& call, const void* const* in, void* const* out) {
  const OperandType& scale_type = call.inputs[1];
  const Numbers scale = NumbersOf(call, in, 1), zero = NumbersOrZeros(call, in, 2, 1);
  if (zero.size() != scale.size()) ThrowScaleMismatch(call, call.inputs[2].shape, scale_type.shape);
  const QuantizationGranularity granularity(call, call.inputs[0].shape, scale_type.shape);
  Numbers y = NumbersOf(call, in, 0);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t at = granularity.At(static_cast<int64_t>(i));
    y[i] = (y[i] - zero[at]) * scale[at];
  }
  StoreNumbers(call, 0, y, out);
}

// Operand i, broadcast to `to` as in numpy. A vector extends along axis `axis` of `to`, counted from the end.
Numbers Along(const KernelCall& call, const void* const* in, size_t i, const Shape& to, int axis) {
  if (!Has(call.inputs, i)) return Numbers(static_cast<size_t>(to.elements()), 0.0);
  const Numbers numbers = NumbersOf(call, in, i);
  Shape from = call.inputs[i].shape;
  if (from.elements() == 1) return Numbers(static_cast<size_t>(to.elements()), numbers[0]);
  for (int k = 1; from.rank() >= 1 && call.inputs[i].shape.rank() == 1 && k < axis; ++k) from.push_back(1);
  for (int k = 1; k <= from.rank(); ++k) {
    if (k > to.rank() || (from[from.rank() - k] != 1 && from[from.rank() - k] != to[to.rank() - k]))
      ThrowScaleMismatch(call, call.inputs[i].shape, to);
  }
  Numbers all;
  all.reserve(static_cast<size_t>(to.elements()));
  Nest<1>(to, {BroadcastStrides(from, to)}).ForEachRow([&](int64_t n, const auto& offset, const auto& step) {
    for (int64_t j = 0; j < n; ++j) all.push_back(numbers[static_cast<size_t>(offset[0] + j * step[0])]);
  });
  return all;
}

// Operand `x` minus its zero point, as float64.
Tensor SubtractZeroPoint(const KernelCall& call, const void* const* in, size_t x, size_t zero, int axis) {
  const Shape& shape = call.inputs[x].shape;
  Numbers numbers = NumbersOf(call, in, x);
  const Numbers points = Along(call, in, zero, shape, axis);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] -= points[i];
  return Tensor::From(numbers, shape);
}

// Output 0 of the operator `op` on these tensors.
Numbers Computed(const KernelCall& call, const std::string& op, const std::vector<Tensor>& inputs) {
  KernelCall wide{.op = op, .domain = "", .attributes = call.attributes, .inputs = {}, .outputs = {}};
  for (const Tensor& input : inputs) wide.inputs.push_back({input.dtype(), input.shape(), {}});
  wide.outputs.push_back({DType::kFloat64, call.outputs[0].shape, {}});
  const std::vector<Tensor> outputs = RunReference(wide, inputs);
  return {outputs[0].as<double>().begin(), outputs[0].as<double>().end()};
}

// y = round(sums * a_scale * b_scale / y_scale) + y_zero, with all operands expanded to the output.
void StoreScaled(const KernelCall& call, Numbers sums, const Numbers& a, const Numbers& b, const Numbers& y, const Numbers& zero,
                 void* const* out) {
  const bool whole = IsInteger(call.outputs[0].dtype);
  for (size_t i = 0; i < sums.size(); ++i) {
    const double value = sums[i] * (a[i] * b[i] / y[i]);
    sums[i] = (whole ? std::nearbyint(value) : value) + zero[i];
  }
  StoreNumbers(call, 0, sums, out);
}

constexpr int kRows = 2, kColumns = 1;  // axes, counted from the end

// (a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero): vectors are per row of a and y, and per column of b.
void QLinearMatMul(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& y = call.outputs[0].shape;
  const Tensor a = SubtractZeroPoint(call, in, 0, 2, kRows), b = SubtractZeroPoint(call, in, 3, 5, kColumns);
  StoreScaled(call, Computed(call, "MatMul", {a, b}), Along(call, in, 1, y, kRows), Along(call, in, 4, y, kColumns),
              Along(call, in, 6, y, kRows), Along(call, in, 7, y, kRows), out);
}

// (x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias): vectors are per output channel.
void QLinearConv(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& y = call.outputs[0].shape;
  const int channels = y.rank() - 1;
  std::vector<Tensor> operands{SubtractZeroPoint(call, in, 0, 2, channels), SubtractZeroPoint(call, in, 3, 5, call.inputs[3].shape.rank())};
  if (Has(call.inputs, 8)) operands.push_back(Converted(InputView(call, in, 8), DType::kFloat64));
  StoreScaled(call, Computed(call, "Conv", operands), Along(call, in, 1, y, channels), Along(call, in, 4, y, channels),
              Along(call, in, 6, y, channels), Along(call, in, 7, y, channels), out);
}

void ConvInteger(const KernelCall& call, const void* const* in, void* const* out) {
  const Tensor x = SubtractZeroPoint(call, in, 0, 2, call.inputs[0].shape.rank() - 1);
  const Tensor w = SubtractZeroPoint(call, in, 1, 3, call.inputs[1].shape.rank());
  StoreNumbers(call, 0, Computed(call, "Conv", {x, w}), out);
}

constexpr ReferenceKernel kKernels[] = {
    {"ConvInteger", "", ConvInteger},     {"DequantizeLinear", "", DequantizeLinear}, {"QLinearConv", "", QLinearConv},
    {"QLinearMatMul", "", QLinearMatMul}, {"QuantizeLinear", "", QuantizeLinear},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceQuantized() { return kKernels; }

}  // namespace gradloom
