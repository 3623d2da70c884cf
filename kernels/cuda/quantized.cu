// Conversion to and from integers or narrow floats with a scale. Products are in quantized_product.cu.
#include <cmath>

#include "kernels/cuda/narrow.cuh"
#include "kernels/cuda/offset_calculator.cuh"
#include "kernels/cuda/quantized.cuh"

namespace gradloom::cuda {
namespace {

// Maps an element of x to an element of the scale: per tensor, per index along an axis, or per block of `block` indices along it.
struct QuantizationGranularity {
  bool single = true;
  int64_t extent = 1, inner = 1, block = 0, blocks = 1;

  explicit QuantizationGranularity(const KernelCall& call) : single(call.inputs[1].shape.elements() == 1) {
    if (single) return;
    const Shape& x = call.inputs[0].shape;
    const int axis = AxisOf(call, call.attributes.Int("axis", 1), x.rank());
    extent = x[axis];
    inner = Product(x, axis + 1, x.rank());
    block = call.attributes.Int("block_size", 0);
    if (block > 0) blocks = (extent + block - 1) / block;
  }

  GRADLOOM_DEVICE int64_t operator()(int64_t i) const {
    if (single) return 0;
    const Quotient row = Divide(i, inner), index = Divide(row.quotient, extent);
    if (block == 0) return index.rest;
    return (index.quotient * blocks + Divide(index.rest, block).quotient) * inner + row.rest;
  }
};

struct Operand {
  const void* data = nullptr;  // null: zeros
  DType dtype = DType::kUndefined;
  GRADLOOM_DEVICE double operator[](int64_t i) const { return data == nullptr ? 0.0 : LoadNumber(data, dtype, i); }
};

struct Quantized {
  int64_t n;
  QuantizationGranularity granularity;
  DType dtypes[3], precision, out;
  NarrowRounding rounding;
  bool whole;  // the result has integer elements

  explicit Quantized(const KernelCall& call)
      : n(call.outputs[0].shape.elements()),
        granularity(call),
        dtypes{call.inputs[0].dtype, call.inputs[1].dtype, call.inputs.size() > 2 ? call.inputs[2].dtype : DType::kUndefined},
        precision(static_cast<DType>(call.attributes.Int("precision", 0))),
        out(call.outputs[0].dtype),
        rounding{.saturate = call.attributes.Int("saturate", 1) != 0},
        whole(IsInteger(out) || IsNarrowInteger(out)) {
    if (precision == DType::kUndefined) precision = dtypes[1];
  }

  Operand In(const Launch& l, size_t i) const { return {dtypes[i] == DType::kUndefined ? nullptr : l.inputs[i], dtypes[i]}; }
};

GRADLOOM_DEVICE double Rounded(double value, DType precision) {
  switch (precision) {
    case DType::kFloat64: return value;
    case DType::kFloat16: return static_cast<double>(static_cast<float>(Convert<Half>(value)));
    case DType::kBfloat16: return static_cast<double>(static_cast<float>(Convert<Bfloat16>(value)));
    default: return static_cast<double>(static_cast<float>(value));
  }
}

GRADLOOM_DEVICE double Clamp(double value, double low, double high) { return value < low ? low : value > high ? high : value; }

void Quantize(const Quantized& q, const Operand& x, const Operand& scale, const Operand& zero, void* y, cudaStream_t stream) {
  ForEachElement(
      q.n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const int64_t at = q.granularity(i);
        const double quotient = Rounded(x[i] / scale[at], q.precision);
        double value = (q.whole ? ::rint(quotient) : quotient) + zero[at];
        if (q.whole && quotient != quotient) value = -static_cast<double>(INFINITY);  // the least integer, as in ONNX's reference
        if (IsNarrowInteger(q.out)) value = Clamp(value, NarrowLowest(q.out), NarrowHighest(q.out));
        StoreNumber(y, q.out, i, value, q.rounding);
      });
}

void Dequantize(const Quantized& q, const Operand& x, const Operand& scale, const Operand& zero, void* y, cudaStream_t stream) {
  ForEachElement(
      q.n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const int64_t at = q.granularity(i);
        StoreAs(y, q.out, i, (x[i] - zero[at]) * scale[at]);
      });
}

std::unique_ptr<Kernel> MakeQuantizeLinear(const KernelCall& call, const KernelSite&) {
  return MakeKernel([q = Quantized(call)](const Launch& l) { Quantize(q, q.In(l, 0), q.In(l, 1), q.In(l, 2), l.outputs[0], l.stream); });
}

std::unique_ptr<Kernel> MakeDequantizeLinear(const KernelCall& call, const KernelSite&) {
  return MakeKernel([q = Quantized(call)](const Launch& l) { Dequantize(q, q.In(l, 0), q.In(l, 1), q.In(l, 2), l.outputs[0], l.stream); });
}

constexpr CudaKernel kQuantizedKernels[] = {
    {"cuda.ConvInteger", MakeConvInteger},     {"cuda.DequantizeLinear", MakeDequantizeLinear}, {"cuda.QLinearConv", MakeQLinearConv},
    {"cuda.QLinearMatMul", MakeQLinearMatMul}, {"cuda.QuantizeLinear", MakeQuantizeLinear},
};

}  // namespace

std::span<const CudaKernel> QuantizedKernels() { return kQuantizedKernels; }

}  // namespace gradloom::cuda
