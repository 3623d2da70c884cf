// Products of quantized operands: one thread per element of the result, with an exact sum. Not optimized.
#include <cmath>
#include <limits>

#include "kernels/cuda/float_operand.cuh"
#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/quantized.cuh"
#include "kernels/cuda/windows.cuh"
#include "kernels/reference/batched_product.h"
#include "kernels/reference/operands.h"

namespace gradloom::cuda {
namespace {

// An operand of type int8 or uint8; null: zeros.
struct Bytes {
  const void* data = nullptr;
  bool has_sign = false;

  GRADLOOM_DEVICE int64_t operator[](int64_t i) const {
    if (data == nullptr) return 0;
    return has_sign ? int64_t{static_cast<const int8_t*>(data)[i]} : int64_t{static_cast<const uint8_t*>(data)[i]};
  }
};

// The inputs of a call, which have different types.
class Inputs {
 public:
  explicit Inputs(const KernelCall& call) {
    for (const OperandType& input : call.inputs) dtypes_.push_back(input.dtype);
  }
  bool Has(size_t i) const { return i < dtypes_.size() && dtypes_[i] != DType::kUndefined; }
  Bytes BytesOf(const Launch& l, size_t i) const { return Has(i) ? Bytes{l.inputs[i], dtypes_[i] == DType::kInt8} : Bytes{}; }
  FloatOperand ScaleOf(const Launch& l, size_t i) const { return {l.inputs[i], dtypes_[i]}; }

 private:
  std::vector<DType> dtypes_;
};

// Zero points and scales for an element of the result: those of the operands, and the scale and zero point of the result.
struct Factors {
  enum Index { kAZero, kBZero, kAScale, kBScale, kYScale, kYZero, kFactors };
  OffsetCalculator<kFactors> offsets;
  Bytes a_zero, b_zero, y_zero;
  FloatOperand a_scale, b_scale, y_scale;
  bool has_sign = false;  // the result is signed

  GRADLOOM_DEVICE double Scale(const OffsetCalculator<kFactors>::Offsets& at) const {
    return a_scale[at.at[kAScale]] * b_scale[at.at[kBScale]] / y_scale[at.at[kYScale]];
  }
  GRADLOOM_DEVICE void Store(int64_t i, const OffsetCalculator<kFactors>::Offsets& at, int64_t sum, void* y) const {
    const double value = ::rint(static_cast<double>(sum) * Scale(at)) + static_cast<double>(y_zero[at.at[kYZero]]);
    const double low = has_sign ? -128 : 0, high = has_sign ? 127 : 255;
    // NaN, which results from an invalid scale, becomes zero.
    const int whole = value != value ? 0 : static_cast<int>(value < low ? low : value > high ? high : value);
    static_cast<uint8_t*>(y)[i] = static_cast<uint8_t>(whole);
  }
};

struct Int32Result {
  int32_t* y;
  GRADLOOM_DEVICE void Store(int64_t i, int64_t sum) const {
    constexpr int64_t kLow = std::numeric_limits<int32_t>::min(), kHigh = std::numeric_limits<int32_t>::max();
    y[i] = static_cast<int32_t>(sum < kLow ? kLow : sum > kHigh ? kHigh : sum);
  }
};

// The strides of operand i along `to`: a scalar, a vector along axis `axis` of `to`, or broadcast as in numpy.
std::vector<int64_t> StridesAlong(const KernelCall& call, size_t i, const Shape& to, int axis) {
  if (!Has(call.inputs, i) || call.inputs[i].shape.elements() == 1) return std::vector<int64_t>(static_cast<size_t>(to.rank()), 0);
  const Shape& from = call.inputs[i].shape;
  if (from.rank() != 1) return BroadcastStrides(from, to);
  std::vector<int64_t> strides(static_cast<size_t>(to.rank()), 0);
  strides[static_cast<size_t>(axis)] = 1;
  return strides;
}

// The operands of QLinearMatMul and QLinearConv: a and b, each followed by its scale and zero point, then scale and zero point of y.
Factors QLinearFactors(const Inputs& inputs, const Launch& l, const OffsetCalculator<Factors::kFactors>& offsets, bool has_sign) {
  return {offsets,
          inputs.BytesOf(l, 2),
          inputs.BytesOf(l, 5),
          inputs.BytesOf(l, 7),
          inputs.ScaleOf(l, 1),
          inputs.ScaleOf(l, 4),
          inputs.ScaleOf(l, 6),
          has_sign};
}

// `a_axis` and `b_axis` are the axes of y along which vectors extend.
OffsetCalculator<Factors::kFactors> QLinearOffsets(const KernelCall& call, const Shape& y, int a_axis, int b_axis) {
  const auto along = [&](size_t i, int axis) { return StridesAlong(call, i, y, axis); };
  return {y, {along(2, a_axis), along(5, b_axis), along(1, a_axis), along(4, b_axis), along(6, a_axis), along(7, a_axis)}};
}

struct ByteProduct {
  int64_t n, k, b_step;
  OffsetCalculator<2> offsets;  // offsets of the row of a and the column of b for an element
};

void Multiply(const ByteProduct& p, const Bytes& a, const Bytes& b, const Factors& factors, void* y, cudaStream_t stream) {
  ForEachElement(
      p.n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto offset = p.offsets(i);
        const auto at = factors.offsets(i);
        const int64_t a_zero = factors.a_zero[at.at[Factors::kAZero]], b_zero = factors.b_zero[at.at[Factors::kBZero]];
        int64_t sum = 0;
        for (int64_t k = 0; k < p.k; ++k) sum += (a[offset.at[0] + k] - a_zero) * (b[offset.at[1] + k * p.b_step] - b_zero);
        factors.Store(i, at, sum, y);
      });
}

// A convolution y[N, M, points] = x[N, C, points] * w[M, C / groups, taps].
struct Convolution {
  Geometry g;
  int64_t images, channels, filters, groups;

  Convolution(const KernelCall& call, size_t w)
      : g(WindowsOf(call.attributes, call.inputs[0].shape,
                    std::vector<int64_t>(call.inputs[w].shape.begin() + 2, call.inputs[w].shape.end())),
          call.inputs[0].shape, call.outputs[0].shape),
        images(call.inputs[0].shape[0]),
        channels(call.inputs[0].shape[1]),
        filters(call.outputs[0].shape[1]),
        groups(call.attributes.Int("group", 1)) {}

  int64_t outputs() const { return images * filters * g.out_points(); }

  // Element i of the result. The padding contributes nothing, as if it held the zero point.
  GRADLOOM_DEVICE int64_t Sum(int64_t i, const Bytes& x, const Bytes& w, int64_t x_zero, int64_t w_zero) const {
    const Quotient plane = Divide(i, g.out_points()), image = Divide(plane.quotient, filters);
    const int64_t each = channels / groups, first = Divide(image.rest, filters / groups).quotient * each;
    int64_t sum = 0;
    ForEachTap(SingleThread{}, g, PointOf(g.out, plane.rest), [&](int64_t point, int64_t tap) {
      for (int64_t c = 0; c < each; ++c) {
        sum += (x[(image.quotient * channels + first + c) * g.in_points() + point] - x_zero) *
               (w[(image.rest * each + c) * g.taps() + tap] - w_zero);
      }
    });
    return sum;
  }
};

void ConvolveScaled(const Convolution& conv, const Bytes& x, const Bytes& w, const int32_t* bias, const Factors& factors, void* y,
                    cudaStream_t stream) {
  ForEachElement(
      conv.outputs(), stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto at = factors.offsets(i);
        const int64_t sum = conv.Sum(i, x, w, factors.a_zero[at.at[Factors::kAZero]], factors.b_zero[at.at[Factors::kBZero]]);
        const int64_t filter = Divide(Divide(i, conv.g.out_points()).quotient, conv.filters).rest;
        factors.Store(i, at, bias == nullptr ? sum : sum + bias[filter], y);
      });
}

void Convolve(const Convolution& conv, const Bytes& x, const Bytes& w, const Bytes& x_zero, const Bytes& w_zero,
              const OffsetCalculator<1>& w_offsets, const Int32Result& y, cudaStream_t stream) {
  ForEachElement(
      conv.outputs(), stream, GRADLOOM_ON_DEVICE(int64_t i) { y.Store(i, conv.Sum(i, x, w, x_zero[0], w_zero[w_offsets(i).at[0]])); });
}

}  // namespace

std::unique_ptr<Kernel> MakeQLinearMatMul(const KernelCall& call, const KernelSite&) {
  const BatchedProduct b(call.inputs[0].shape, call.inputs[3].shape, call.outputs[0].shape);
  Shape result = b.batch;
  result.push_back(b.m);
  result.push_back(b.n);
  const auto strides = [](std::vector<int64_t> matrices, int64_t matrix, int64_t row, int64_t column) {
    for (int64_t& stride : matrices) stride *= matrix;
    matrices.push_back(row);
    matrices.push_back(column);
    return matrices;
  };
  const ByteProduct product{
      result.elements(), b.k, b.n, {result, {strides(b.a_strides, b.m * b.k, b.k, 0), strides(b.b_strides, b.k * b.n, 0, 1)}}};
  const OffsetCalculator<Factors::kFactors> offsets = QLinearOffsets(call, result, result.rank() - 2, result.rank() - 1);
  return MakeKernel([=, inputs = Inputs(call), has_sign = call.outputs[0].dtype == DType::kInt8](const Launch& l) {
    const Factors factors = QLinearFactors(inputs, l, offsets, has_sign);
    Multiply(product, inputs.BytesOf(l, 0), inputs.BytesOf(l, 3), factors, l.outputs[0], l.stream);
  });
}

std::unique_ptr<Kernel> MakeQLinearConv(const KernelCall& call, const KernelSite&) {
  const Convolution conv(call, 3);
  const OffsetCalculator<Factors::kFactors> offsets = QLinearOffsets(call, call.outputs[0].shape, 1, 1);
  return MakeKernel([=, inputs = Inputs(call), has_sign = call.outputs[0].dtype == DType::kInt8](const Launch& l) {
    const int32_t* const bias = inputs.Has(8) ? l.In<int32_t>(8) : nullptr;
    const Factors factors = QLinearFactors(inputs, l, offsets, has_sign);
    ConvolveScaled(conv, inputs.BytesOf(l, 0), inputs.BytesOf(l, 3), bias, factors, l.outputs[0], l.stream);
  });
}

std::unique_ptr<Kernel> MakeConvInteger(const KernelCall& call, const KernelSite&) {
  const Convolution conv(call, 1);
  const OffsetCalculator<1> w_offsets(call.outputs[0].shape, {StridesAlong(call, 3, call.outputs[0].shape, 1)});
  return MakeKernel([=, inputs = Inputs(call)](const Launch& l) {
    Convolve(conv, inputs.BytesOf(l, 0), inputs.BytesOf(l, 1), inputs.BytesOf(l, 2), inputs.BytesOf(l, 3), w_offsets, {l.Out<int32_t>(0)},
             l.stream);
  });
}

}  // namespace gradloom::cuda
