// Pointwise operators with one operand, for every type; elementwise_binary.cu and elementwise_many.cu have those with several. There is one
// kernel per type for all functions; the function is a parameter, uniform over the threads.
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/scalar/integer.h"

namespace gradloom::cuda {
namespace {

enum class Function : uint8_t {
  kAbs,
  kAcos,
  kAcosh,
  kAsin,
  kAsinh,
  kAtan,
  kAtanh,
  kBitwiseNot,
  kCeil,
  kCelu,
  kCos,
  kCosh,
  kElu,
  kErf,
  kExp,
  kFloor,
  kGelu,
  kGeluTanh,
  kHardSigmoid,
  kHardSwish,
  kLeakyRelu,
  kLog,
  kMish,
  kNeg,
  kReciprocal,
  kRelu,
  kRound,
  kSelu,
  kShrink,
  kSigmoid,
  kSign,
  kSin,
  kSinh,
  kSoftplus,
  kSoftsign,
  kSqrt,
  kSwish,
  kTan,
  kTanh,
  kThresholdedRelu,
};

struct FunctionRow {
  std::string_view op;
  Function function;
  // The attributes that the formula uses as p and q.
  const char* p = nullptr;
  double p_absent = 0;
  const char* q = nullptr;
  double q_absent = 0;
};

constexpr FunctionRow kFunctions[] = {
    {"Abs", Function::kAbs},
    {"Acos", Function::kAcos},
    {"Acosh", Function::kAcosh},
    {"Asin", Function::kAsin},
    {"Asinh", Function::kAsinh},
    {"Atan", Function::kAtan},
    {"Atanh", Function::kAtanh},
    {"BitwiseNot", Function::kBitwiseNot},
    {"Ceil", Function::kCeil},
    {"Celu", Function::kCelu, "alpha", 1.0},
    {"Cos", Function::kCos},
    {"Cosh", Function::kCosh},
    {"Elu", Function::kElu, "alpha", 1.0},
    {"Erf", Function::kErf},
    {"Exp", Function::kExp},
    {"Floor", Function::kFloor},
    {"Gelu", Function::kGelu},
    {"HardSigmoid", Function::kHardSigmoid, "alpha", 0.20000000298023223876953125, "beta", 0.5},
    {"HardSwish", Function::kHardSwish},
    {"LeakyRelu", Function::kLeakyRelu, "alpha", 0.00999999977648258209228515625},
    {"Log", Function::kLog},
    {"Mish", Function::kMish},
    {"Neg", Function::kNeg},
    {"Reciprocal", Function::kReciprocal},
    {"Relu", Function::kRelu},
    {"Round", Function::kRound},
    {"Selu", Function::kSelu, "alpha", 1.67326319217681884765625, "gamma", 1.05070102214813232421875},
    {"Shrink", Function::kShrink, "bias", 0.0, "lambd", 0.5},
    {"Sigmoid", Function::kSigmoid},
    {"Sign", Function::kSign},
    {"Sin", Function::kSin},
    {"Sinh", Function::kSinh},
    {"Softplus", Function::kSoftplus},
    {"Softsign", Function::kSoftsign},
    {"Sqrt", Function::kSqrt},
    {"Swish", Function::kSwish, "alpha", 1.0},
    {"Tan", Function::kTan},
    {"Tanh", Function::kTanh},
    {"ThresholdedRelu", Function::kThresholdedRelu, "alpha", 1.0},
};

// A function with its attributes.
struct Formula {
  Function function = Function::kAbs;
  double p = 0, q = 0;
};

Formula FormulaOf(const KernelCall& call) {
  for (const FunctionRow& row : kFunctions) {
    if (row.op != call.op) continue;
    Formula formula{row.function};
    if (row.p != nullptr) formula.p = call.attributes.Float(row.p, row.p_absent);
    if (row.q != nullptr) formula.q = call.attributes.Float(row.q, row.q_absent);
    if (call.op == "Gelu" && call.attributes.String("approximate", "none") == "tanh") formula.function = Function::kGeluTanh;
    return formula;
  }
  throw Error(ErrorCode::kUnsupported, "no pointwise function '" + Escaped(call.op) + "'");
}

// The formulas of the reference kernels.
template <typename A>
GRADLOOM_DEVICE A Apply(Function function, A x, A p, A q) {
  switch (function) {
    case Function::kAbs: return libm::Abs(x);
    case Function::kAcos: return libm::Acos(x);
    case Function::kAcosh: return libm::Acosh(x);
    case Function::kAsin: return libm::Asin(x);
    case Function::kAsinh: return libm::Asinh(x);
    case Function::kAtan: return libm::Atan(x);
    case Function::kAtanh: return libm::Atanh(x);
    case Function::kCeil: return libm::Ceil(x);
    case Function::kCelu: return libm::CeluElement(x, p);
    case Function::kCos: return libm::Cos(x);
    case Function::kCosh: return libm::Cosh(x);
    case Function::kElu: return libm::EluElement(x, p);
    case Function::kErf: return libm::Erf(x);
    case Function::kExp: return libm::Exp(x);
    case Function::kFloor: return libm::Floor(x);
    case Function::kGelu: return libm::Gelu(x);
    case Function::kGeluTanh: return libm::GeluTanh(x);
    case Function::kHardSigmoid: return libm::HardSigmoidElement(x, p, q);
    case Function::kHardSwish: return libm::HardSwishElement(x);
    case Function::kLeakyRelu: return libm::LeakyReluElement(x, p);
    case Function::kLog: return libm::Log(x);
    case Function::kMish: return libm::MishElement(x);
    case Function::kNeg: return -x;
    case Function::kReciprocal: return 1 / x;
    case Function::kRelu: return libm::ReluElement(x);
    case Function::kRound: return libm::Rint(x);
    case Function::kSelu: return libm::SeluElement(x, p, q);
    case Function::kShrink: return x < -q ? x + p : x > q ? x - p : A{0};
    case Function::kSigmoid: return libm::Sigmoid(x);
    case Function::kSign: return libm::SignOf(x);
    case Function::kSin: return libm::Sin(x);
    case Function::kSinh: return libm::Sinh(x);
    case Function::kSoftplus: return libm::Softplus(x);
    case Function::kSoftsign: return libm::SoftsignElement(x);
    case Function::kSqrt: return libm::Sqrt(x);
    case Function::kSwish: return x * libm::Sigmoid(p * x);
    case Function::kTan: return libm::Tan(x);
    case Function::kTanh: return libm::Tanh(x);
    case Function::kThresholdedRelu: return libm::ThresholdedReluElement(x, p);
    default: return x;
  }
}

// The functions for integers: results wrap, except for Shrink, which computes in double and saturates.
template <typename T>
GRADLOOM_DEVICE T ApplyToInteger(Function function, T x, double p, double q) {
  switch (function) {
    case Function::kAbs: return integer::Abs(x);
    case Function::kBitwiseNot: return static_cast<T>(~x);
    case Function::kNeg: return integer::Negate(x);
    case Function::kRelu: return integer::IsNegative(x) ? T{0} : x;
    case Function::kShrink: return Convert<T>(Apply(function, static_cast<double>(x), p, q));
    case Function::kSign: return integer::Sign(x);
    default: return x;
  }
}

template <typename T>
void Map(int64_t n, const T* in, T* out, const Formula& formula, cudaStream_t stream) {
  using A = Arithmetic<T>;
  constexpr int kCount = kAtOnce<T>;
  const Function function = formula.function;
  const A p = static_cast<A>(formula.p), q = static_cast<A>(formula.q);
  const int64_t part = (n + kCount - 1) / kCount;
  ForEachElement(
      part, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        A x[kCount];
        for (int k = 0; k < kCount; ++k) x[k] = i + k * part < n ? static_cast<A>(in[i + k * part]) : A{0};
        for (int k = 0; k < kCount; ++k) {
          if (i + k * part < n) out[i + k * part] = static_cast<T>(Apply(function, x[k], p, q));
        }
      });
}

template <typename T>
void MapIntegers(int64_t n, const T* in, T* out, const Formula& formula, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) { out[i] = ApplyToInteger(formula.function, in[i], formula.p, formula.q); });
}

std::unique_ptr<Kernel> MakeUnary(const KernelCall& call, const KernelSite&) {
  const int64_t n = call.inputs[0].shape.elements();
  const Formula formula = FormulaOf(call);
  return WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) {
      if constexpr (std::is_integral_v<T>)
        MapIntegers(n, l.In<T>(0), l.Out<T>(0), formula, l.stream);
      else
        Map(n, l.In<T>(0), l.Out<T>(0), formula, l.stream);
    });
  });
}

void Invert(int64_t n, const bool* in, bool* out, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) { out[i] = !in[i]; });
}

std::unique_ptr<Kernel> MakeNot(const KernelCall& call, const KernelSite&) {
  const int64_t n = call.inputs[0].shape.elements();
  return MakeKernel([=](const Launch& l) { Invert(n, l.In<bool>(0), l.Out<bool>(0), l.stream); });
}

// The elements that a test accepts.
struct AcceptedValues {
  bool nan, negative_infinity, positive_infinity;
};

template <typename T>
void Test(int64_t n, const T* in, bool* out, const AcceptedValues& accepted, cudaStream_t stream) {
  using A = Arithmetic<T>;
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const A x = static_cast<A>(in[i]);
        const bool nan = x != x, infinite = !nan && x - x != A{0};
        out[i] = (nan && accepted.nan) || (infinite && (x < A{0} ? accepted.negative_infinity : accepted.positive_infinity));
      });
}

std::unique_ptr<Kernel> MakeTest(const KernelCall& call, const KernelSite&) {
  const int64_t n = call.inputs[0].shape.elements();
  AcceptedValues accepted{true, false, false};
  if (call.op == "IsInf")
    accepted = {false, call.attributes.Int("detect_negative", 1) != 0, call.attributes.Int("detect_positive", 1) != 0};
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { Test(n, l.In<T>(0), l.Out<bool>(0), accepted, l.stream); });
  });
}

constexpr CudaKernel kElementwiseKernels[] = {
    {"cuda.Abs", MakeUnary},
    {"cuda.Acos", MakeUnary},
    {"cuda.Acosh", MakeUnary},
    {"cuda.Add", MakeBinary},
    {"cuda.And", MakeComparison},
    {"cuda.Asin", MakeUnary},
    {"cuda.Asinh", MakeUnary},
    {"cuda.Atan", MakeUnary},
    {"cuda.Atanh", MakeUnary},
    {"cuda.BitShift", MakeBinary},
    {"cuda.BitwiseAnd", MakeBinary},
    {"cuda.BitwiseNot", MakeUnary},
    {"cuda.BitwiseOr", MakeBinary},
    {"cuda.BitwiseXor", MakeBinary},
    {"cuda.Cast", MakeCast},
    {"cuda.CastLike", MakeCast},
    {"cuda.Ceil", MakeUnary},
    {"cuda.Celu", MakeUnary},
    {"cuda.Clip", MakeClip},
    {"cuda.Cos", MakeUnary},
    {"cuda.Cosh", MakeUnary},
    {"cuda.Div", MakeBinary},
    {"cuda.Elu", MakeUnary},
    {"cuda.Equal", MakeComparison},
    {"cuda.Erf", MakeUnary},
    {"cuda.Exp", MakeUnary},
    {"cuda.Floor", MakeUnary},
    {"cuda.Gelu", MakeUnary},
    {"cuda.Greater", MakeComparison},
    {"cuda.GreaterOrEqual", MakeComparison},
    {"cuda.HardSigmoid", MakeUnary},
    {"cuda.HardSwish", MakeUnary},
    {"cuda.IsInf", MakeTest},
    {"cuda.IsNaN", MakeTest},
    {"cuda.LeakyRelu", MakeUnary},
    {"cuda.Less", MakeComparison},
    {"cuda.LessOrEqual", MakeComparison},
    {"cuda.Log", MakeUnary},
    {"cuda.Max", MakeFold},
    {"cuda.Mean", MakeFold},
    {"cuda.Min", MakeFold},
    {"cuda.Mish", MakeUnary},
    {"cuda.Mod", MakeBinary},
    {"cuda.Mul", MakeBinary},
    {"cuda.Neg", MakeUnary},
    {"cuda.Not", MakeNot},
    {"cuda.Or", MakeComparison},
    {"cuda.PRelu", MakeBinary},
    {"cuda.Pow", MakePow},
    {"cuda.Reciprocal", MakeUnary},
    {"cuda.Relu", MakeUnary},
    {"cuda.Round", MakeUnary},
    {"cuda.Selu", MakeUnary},
    {"cuda.Shrink", MakeUnary},
    {"cuda.Sigmoid", MakeUnary},
    {"cuda.Sign", MakeUnary},
    {"cuda.Sin", MakeUnary},
    {"cuda.Sinh", MakeUnary},
    {"cuda.Softplus", MakeUnary},
    {"cuda.Softsign", MakeUnary},
    {"cuda.Sqrt", MakeUnary},
    {"cuda.Sub", MakeBinary},
    {"cuda.Sum", MakeFold},
    {"cuda.SwiGLU", MakeBinary},
    {"cuda.Swish", MakeUnary},
    {"cuda.Tan", MakeUnary},
    {"cuda.Tanh", MakeUnary},
    {"cuda.ThresholdedRelu", MakeUnary},
    {"cuda.Where", MakeWhere},
    {"cuda.Xor", MakeComparison},
};

}  // namespace

std::span<const CudaKernel> ElementwiseKernels() { return kElementwiseKernels; }

}  // namespace gradloom::cuda
