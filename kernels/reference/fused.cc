// gradloom.Fused and FusedTensors: run their program one element at a time, with functions of the standard library.
#include <algorithm>
#include <cmath>

#include "kernels/catalog/pointwise.h"
#include "kernels/catalog/pointwise_tensors.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

template <typename T>
T Expm1Left(T x, T alpha) {
  return x > 0 ? x : alpha * std::expm1(x);
}

template <typename T>
T SigmoidOf(T x) {
  return 1 / (1 + std::exp(-x));
}

template <typename T>
T FloorModOf(T a, T b) {
  const T r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// One function of kernels/scalar/pointwise.def.
template <typename T>
T Apply(PointwiseOp op, T a, T b, T c) {
  const auto truth = [](bool value) { return value ? T{1} : T{0}; };
  switch (op) {
    case PointwiseOp::kCopy: return a;
    case PointwiseOp::kAbs: return std::fabs(a);
    case PointwiseOp::kCeil: return std::ceil(a);
    case PointwiseOp::kErf: return std::erf(a);
    case PointwiseOp::kExp: return std::exp(a);
    case PointwiseOp::kFloor: return std::floor(a);
    case PointwiseOp::kGelu: return GeluElement(a);
    case PointwiseOp::kHardSwish: return a * Clamp01(a / 6 + T(0.5));
    case PointwiseOp::kIsNaN: return truth(a != a);
    case PointwiseOp::kLog: return std::log(a);
    case PointwiseOp::kMish: return a * std::tanh(SoftplusElement(a));
    case PointwiseOp::kNeg: return -a;
    case PointwiseOp::kNot: return truth(a == 0);
    case PointwiseOp::kReciprocal: return 1 / a;
    case PointwiseOp::kRelu: return a < 0 ? T{0} : a;
    case PointwiseOp::kRound: return std::nearbyint(a);
    case PointwiseOp::kSigmoid: return SigmoidOf(a);
    case PointwiseOp::kSign: return a != a ? a : truth(a > 0) - truth(a < 0);
    case PointwiseOp::kSoftplus: return SoftplusElement(a);
    case PointwiseOp::kSoftsign: return a / (1 + std::fabs(a));
    case PointwiseOp::kSqrt: return std::sqrt(a);
    case PointwiseOp::kTanh: return std::tanh(a);
    case PointwiseOp::kAcos: return std::acos(a);
    case PointwiseOp::kAcosh: return std::acosh(a);
    case PointwiseOp::kAsin: return std::asin(a);
    case PointwiseOp::kAsinh: return std::asinh(a);
    case PointwiseOp::kAtan: return std::atan(a);
    case PointwiseOp::kAtanh: return std::atanh(a);
    case PointwiseOp::kCos: return std::cos(a);
    case PointwiseOp::kCosh: return std::cosh(a);
    case PointwiseOp::kSin: return std::sin(a);
    case PointwiseOp::kSinh: return std::sinh(a);
    case PointwiseOp::kTan: return std::tan(a);
    case PointwiseOp::kAdd: return a + b;
    case PointwiseOp::kAnd:
    case PointwiseOp::kMul: return a * b;
    case PointwiseOp::kDiv: return a / b;
    case PointwiseOp::kEqual: return truth(a == b);
    case PointwiseOp::kGreater: return truth(a > b);
    case PointwiseOp::kGreaterOrEqual: return truth(a >= b);
    case PointwiseOp::kLess: return truth(a < b);
    case PointwiseOp::kLessOrEqual: return truth(a <= b);
    case PointwiseOp::kMax: return a != a ? a : (b != b || b > a) ? b : a;
    case PointwiseOp::kMin: return a != a ? a : (b != b || b < a) ? b : a;
    case PointwiseOp::kMod: return FloorModOf(a, b);
    case PointwiseOp::kOr: return truth(a + b != 0);
    case PointwiseOp::kPow: return std::pow(a, b);
    case PointwiseOp::kPRelu:
    case PointwiseOp::kLeakyRelu: return a < 0 ? b * a : a;
    case PointwiseOp::kSub: return a - b;
    case PointwiseOp::kXor: return truth(a != b);
    case PointwiseOp::kCelu: return a > 0 ? a : b * std::expm1(a / b);
    case PointwiseOp::kElu: return Expm1Left(a, b);
    case PointwiseOp::kThresholdedRelu: return a > b ? a : T{0};
    case PointwiseOp::kWhere: return a != 0 ? b : c;
    case PointwiseOp::kClip: return (a < b ? b : a) > c ? c : (a < b ? b : a);
    case PointwiseOp::kHardSigmoid: return Clamp01(b * a + c);
    case PointwiseOp::kSelu: return c * Expm1Left(a, b);
    case PointwiseOp::kGeluTanh: return GeluTanhElement(a);
    case PointwiseOp::kSquare: return a * a;
    case PointwiseOp::kFmod: return std::fmod(a, b);
    case PointwiseOp::kMulAdd: return a * b + c;
    case PointwiseOp::kMulMul: return a * b * c;
    case PointwiseOp::kAddAdd: return a + b + c;
    case PointwiseOp::kSubMul: return (a - b) * c;
    case PointwiseOp::kReluGrad: return a <= 0 ? T{0} : b;
    case PointwiseOp::kSigmoidGrad: return b * (a * (1 - a));
    case PointwiseOp::kTanhGrad: return b * (1 - a * a);
    case PointwiseOp::kToFloat16: return static_cast<float>(Half(static_cast<float>(a)));
    case PointwiseOp::kToBfloat16: return static_cast<float>(Bfloat16(static_cast<float>(a)));
  }
  return a;
}

// Element `offset` of an operand with elements of type T, of a 16-bit type, or bool.
template <typename T>
T Element(const OperandType& type, const void* data, int64_t offset) {
  switch (type.dtype) {
    case DType::kBool: return static_cast<T>(static_cast<const bool*>(data)[offset]);
    case DType::kFloat16: return static_cast<float>(static_cast<const Half*>(data)[offset]);
    case DType::kBfloat16: return static_cast<float>(static_cast<const Bfloat16*>(data)[offset]);
    default: return static_cast<const T*>(data)[offset];
  }
}

template <typename T>
void SetElement(const OperandType& type, void* data, int64_t offset, T value) {
  switch (type.dtype) {
    case DType::kBool: static_cast<bool*>(data)[offset] = value != 0; return;
    case DType::kFloat16: static_cast<Half*>(data)[offset] = static_cast<float>(value); return;
    case DType::kBfloat16: static_cast<Bfloat16*>(data)[offset] = static_cast<float>(value); return;
    default: static_cast<T*>(data)[offset] = value;
  }
}

void Fused(const KernelCall& call, const void* const* in, void* const* out) {
  const PointwiseProgram program = PointwiseProgram::FromAttributes(call.attributes, static_cast<int>(call.inputs.size()));
  const Shape& shape = call.outputs[0].shape;
  const bool wide = std::any_of(call.inputs.begin(), call.inputs.end(), [](const OperandType& i) { return i.dtype == DType::kFloat64; });
  WithFloat(wide ? DType::kFloat64 : DType::kFloat32, [&]<typename T>(std::type_identity<T>) {
    std::vector<std::vector<int64_t>> strides;
    for (const OperandType& input : call.inputs) strides.push_back(BroadcastStrides(input.shape, shape));
    std::vector<T> values(static_cast<size_t>(program.first_result()) + program.instructions.size());
    for (size_t k = 0; k < program.constants.size(); ++k) values[call.inputs.size() + k] = static_cast<T>(program.constants[k]);
    const int64_t n = shape.elements();
    for (int64_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < call.inputs.size(); ++k) {
        int64_t rest = i, offset = 0;
        for (int axis = shape.rank(); axis-- > 0; rest /= shape[axis]) offset += rest % shape[axis] * strides[k][static_cast<size_t>(axis)];
        values[k] = Element<T>(call.inputs[k], in[k], offset);
      }
      auto result = static_cast<size_t>(program.first_result());
      for (const auto& [op, operands] : program.instructions) {
        const auto operand = [&](size_t k) { return operands[k] < 0 ? T{0} : values[static_cast<size_t>(operands[k])]; };
        values[result++] = Apply<T>(op, operand(0), operand(1), operand(2));
      }
      for (size_t k = 0; k < program.outputs.size(); ++k) {
        SetElement(call.outputs[k], out[k], i, values[static_cast<size_t>(program.outputs[k])]);
      }
    }
  });
}

void FusedTensors(const KernelCall& call, const void* const* in, void* const* out) {
  const int tensors = FusedTensorsOf(call);
  for (int tensor = 0; tensor < tensors; ++tensor) {
    const KernelCall one = FusedOf(call, tensor);
    Fused(one, in, out);
    in += one.inputs.size();
    out += one.outputs.size();
  }
}

constexpr ReferenceKernel kKernels[] = {{"Fused", "gradloom", Fused}, {"FusedTensors", "gradloom", FusedTensors}};

}  // namespace

std::span<const ReferenceKernel> ReferenceFused() { return kKernels; }

}  // namespace gradloom
