// Pointwise operators with two broadcast operands.
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/scalar/integer.h"

namespace gradloom::cuda {
namespace {

enum class Function : uint8_t { kAdd, kSub, kMul, kDiv, kMod, kFmod, kPRelu, kSwiGlu, kAnd, kOr, kXor, kShiftLeft, kShiftRight };

Function FunctionOf(const KernelCall& call) {
  if (call.op == "Add") return Function::kAdd;
  if (call.op == "Sub") return Function::kSub;
  if (call.op == "Mul") return Function::kMul;
  if (call.op == "Div") return Function::kDiv;
  if (call.op == "Mod") return call.attributes.Int("fmod", 0) != 0 ? Function::kFmod : Function::kMod;
  if (call.op == "PRelu") return Function::kPRelu;
  if (call.op == "SwiGLU") return Function::kSwiGlu;
  if (call.op == "BitwiseAnd") return Function::kAnd;
  if (call.op == "BitwiseOr") return Function::kOr;
  if (call.op == "BitwiseXor") return Function::kXor;
  if (call.op != "BitShift") throw Error(ErrorCode::kUnsupported, "no pointwise function '" + Escaped(call.op) + "'");
  const std::string direction = call.attributes.String("direction", "");
  if (direction == "LEFT") return Function::kShiftLeft;
  if (direction == "RIGHT") return Function::kShiftRight;
  throw Error(ErrorCode::kAttr, "BitShift: direction '" + Escaped(direction) + "' is neither \"LEFT\" nor \"RIGHT\"");
}

template <typename A>
GRADLOOM_DEVICE A Apply(Function function, A a, A b, A alpha) {
  switch (function) {
    case Function::kAdd: return a + b;
    case Function::kSub: return a - b;
    case Function::kMul: return a * b;
    case Function::kDiv: return a / b;
    case Function::kMod: return libm::FloorMod(a, b);
    case Function::kFmod: return libm::Fmod(a, b);
    case Function::kPRelu: return libm::PReluElement(a, b);
    case Function::kSwiGlu: return a * libm::Sigmoid(alpha * a) * b;
    default: return a;
  }
}

// Results wrap.
template <typename T>
GRADLOOM_DEVICE T ApplyToIntegers(Function function, T a, T b) {
  const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (function) {
    case Function::kAdd: return static_cast<T>(x + y);
    case Function::kSub: return static_cast<T>(x - y);
    case Function::kMul: return static_cast<T>(x * y);
    case Function::kDiv: return integer::Quotient(a, b);
    case Function::kMod: return integer::Remainder(a, b, false);
    case Function::kFmod: return integer::Remainder(a, b, true);
    case Function::kPRelu: return integer::PRelu(a, b);
    case Function::kAnd: return static_cast<T>(a & b);
    case Function::kOr: return static_cast<T>(a | b);
    case Function::kXor: return static_cast<T>(a ^ b);
    case Function::kShiftLeft: return integer::Shifted(a, b, true);
    case Function::kShiftRight: return integer::Shifted(a, b, false);
    default: return a;
  }
}

// The offsets of inputs 0 and 1 for the elements of the output.
OffsetCalculator<2> OffsetsOf(const KernelCall& call) {
  const Shape& shape = call.outputs[0].shape;
  return OffsetCalculator<2>(shape, {BroadcastStrides(call.inputs[0].shape, shape), BroadcastStrides(call.inputs[1].shape, shape)});
}

template <typename T>
void Map(int64_t n, const T* a, const T* b, T* out, const OffsetCalculator<2>& offsets, Function function, double attribute,
         cudaStream_t stream) {
  using A = Arithmetic<T>;
  constexpr int kCount = kAtOnce<T>;
  const A alpha = static_cast<A>(attribute);
  const int64_t part = (n + kCount - 1) / kCount;
  ForEachElement(
      part, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        A x[kCount], y[kCount];
        for (int k = 0; k < kCount; ++k) {
          if (i + k * part >= n) continue;
          const auto at = offsets(i + k * part);
          x[k] = static_cast<A>(a[at.at[0]]);
          y[k] = static_cast<A>(b[at.at[1]]);
        }
        for (int k = 0; k < kCount; ++k) {
          if (i + k * part < n) out[i + k * part] = static_cast<T>(Apply(function, x[k], y[k], alpha));
        }
      });
}

template <typename T>
void MapIntegers(int64_t n, const T* a, const T* b, T* out, const OffsetCalculator<2>& offsets, Function function, const KernelSite& site,
                 cudaStream_t stream) {
  DataFault* const fault = site.fault;
  const int id = site.id;
  const bool divides = function == Function::kDiv || function == Function::kMod || function == Function::kFmod;
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto at = offsets(i);
        const T x = a[at.at[0]], y = b[at.at[1]];
        if (divides && y == T{0}) {
          Report(fault, id, kDivisionByZero, i, n);
          out[i] = T{0};
          return;
        }
        out[i] = ApplyToIntegers(function, x, y);
      });
}

enum class Comparison : uint8_t { kAnd, kOr, kXor, kEqual, kGreater, kGreaterOrEqual, kLess, kLessOrEqual };

Comparison ComparisonOf(const KernelCall& call) {
  if (call.op == "And") return Comparison::kAnd;
  if (call.op == "Or") return Comparison::kOr;
  if (call.op == "Xor") return Comparison::kXor;
  if (call.op == "Equal") return Comparison::kEqual;
  if (call.op == "Greater") return Comparison::kGreater;
  if (call.op == "GreaterOrEqual") return Comparison::kGreaterOrEqual;
  if (call.op == "Less") return Comparison::kLess;
  if (call.op == "LessOrEqual") return Comparison::kLessOrEqual;
  throw Error(ErrorCode::kUnsupported, "no comparison '" + Escaped(call.op) + "'");
}

template <typename A>
GRADLOOM_DEVICE bool Compare(Comparison comparison, A a, A b) {
  switch (comparison) {
    case Comparison::kAnd: return a != A{0} && b != A{0};
    case Comparison::kOr: return a != A{0} || b != A{0};
    case Comparison::kXor: return (a != A{0}) != (b != A{0});
    case Comparison::kEqual: return a == b;
    case Comparison::kGreater: return a > b;
    case Comparison::kGreaterOrEqual: return a >= b;
    case Comparison::kLess: return a < b;
    case Comparison::kLessOrEqual: return a <= b;
  }
  return false;
}

template <typename T>
void CompareAll(int64_t n, const T* a, const T* b, bool* out, const OffsetCalculator<2>& offsets, Comparison comparison,
                cudaStream_t stream) {
  using A = Arithmetic<T>;
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto at = offsets(i);
        out[i] = Compare(comparison, static_cast<A>(a[at.at[0]]), static_cast<A>(b[at.at[1]]));
      });
}

// A power with an exponent of any type: in the type of the base if that has the exponent, else in double.
template <typename A>
GRADLOOM_DEVICE A PowerOf(A x, double y) {
  const A narrow = static_cast<A>(y);
  return static_cast<double>(narrow) == y || y != y ? pow(x, narrow) : static_cast<A>(pow(static_cast<double>(x), y));
}

template <typename T>
void Power(int64_t n, const T* base, const void* exponent, DType exponent_type, T* out, const OffsetCalculator<2>& offsets,
           cudaStream_t stream) {
  using A = Arithmetic<T>;
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto at = offsets(i);
        out[i] = static_cast<T>(PowerOf(static_cast<A>(base[at.at[0]]), LoadAs<double>(exponent, exponent_type, at.at[1])));
      });
}

// The types of a power with an integer base.
struct PowerTypes {
  DType base, exponent;
  bool is_signed;
};

void PowerOfIntegers(int64_t n, const void* base, const void* exponent, void* out, const PowerTypes& types,
                     const OffsetCalculator<2>& offsets, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto at = offsets(i);
        const uint64_t x = LoadAs<uint64_t>(base, types.base, at.at[0]);
        StoreAs(out, types.base, i, integer::Power(x, types.is_signed, LoadAs<int64_t>(exponent, types.exponent, at.at[1])));
      });
}

void RealPowerOfIntegers(int64_t n, const void* base, const void* exponent, void* out, const PowerTypes& types,
                         const OffsetCalculator<2>& offsets, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto at = offsets(i);
        StoreAs(out, types.base, i, pow(LoadAs<double>(base, types.base, at.at[0]), LoadAs<double>(exponent, types.exponent, at.at[1])));
      });
}

}  // namespace

std::unique_ptr<Kernel> MakeBinary(const KernelCall& stated, const KernelSite& site) {
  const KernelCall call = InMemoryOrder(stated);
  const int64_t n = call.outputs[0].shape.elements();
  const Function function = FunctionOf(call);
  const double alpha = call.attributes.Float("alpha", 1.0);
  return WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, offsets = OffsetsOf(call)](const Launch& l) {
      if constexpr (std::is_integral_v<T>)
        MapIntegers(n, l.In<T>(0), l.In<T>(1), l.Out<T>(0), offsets, function, site, l.stream);
      else
        Map(n, l.In<T>(0), l.In<T>(1), l.Out<T>(0), offsets, function, alpha, l.stream);
    });
  });
}

std::unique_ptr<Kernel> MakeComparison(const KernelCall& stated, const KernelSite&) {
  const KernelCall call = InMemoryOrder(stated);
  const int64_t n = call.outputs[0].shape.elements();
  const Comparison comparison = ComparisonOf(call);
  return WithType(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, offsets = OffsetsOf(call)](const Launch& l) {
      CompareAll(n, l.In<T>(0), l.In<T>(1), l.Out<bool>(0), offsets, comparison, l.stream);
    });
  });
}

// The result has the type of the base.
std::unique_ptr<Kernel> MakePow(const KernelCall& stated, const KernelSite&) {
  const KernelCall call = InMemoryOrder(stated);
  const int64_t n = call.outputs[0].shape.elements();
  const OffsetCalculator<2> offsets = OffsetsOf(call);
  const DType base = call.inputs[0].dtype, exponent = call.inputs[1].dtype;
  if (IsFloating(base)) {
    return WithFloating(base, [&]<typename T>(std::type_identity<T>) {
      return MakeKernel([=](const Launch& l) { Power(n, l.In<T>(0), l.inputs[1], exponent, l.Out<T>(0), offsets, l.stream); });
    });
  }
  const bool is_signed = WithInteger(base, []<typename T>(std::type_identity<T>) { return std::is_signed_v<T>; });
  const auto power = IsInteger(exponent) ? PowerOfIntegers : RealPowerOfIntegers;
  return MakeKernel([=, types = PowerTypes{base, exponent, is_signed}](const Launch& l) {
    power(n, l.inputs[0], l.inputs[1], l.outputs[0], types, offsets, l.stream);
  });
}

}  // namespace gradloom::cuda
