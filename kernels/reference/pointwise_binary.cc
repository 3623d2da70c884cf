// Functions of two broadcast operands: arithmetic, comparison, logic, bits.
#include <cmath>
#include <functional>

#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"
#include "kernels/scalar/integer.h"
#include "kernels/scalar/libm.h"
#include "runtime/base/convert.h"

namespace gradloom {
namespace {

// Applies f to floating-point elements, and to integers as uint64, which wraps without undefined behavior.
template <auto f>
void WrappingArithmetic(const KernelCall& call, const void* const* in, void* const* out) {
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    MapBroadcast<T, T, T>(call, in, out, [](auto a, auto b) {
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
      else
        return f(a, b);
    });
  });
}

template <auto f>
void Compare(const KernelCall& call, const void* const* in, void* const* out) {
  WithType(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) { MapBroadcast<T, T, bool>(call, in, out, f); });
}

template <auto f>
void Logic(const KernelCall& call, const void* const* in, void* const* out) {
  MapBroadcast<bool, bool, bool>(call, in, out, f);
}

template <auto f>
void Bits(const KernelCall& call, const void* const* in, void* const* out) {
  WithInteger(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    MapBroadcast<T, T, T>(call, in, out, [](T a, T b) { return static_cast<T>(f(a, b)); });
  });
}

[[noreturn]] void DivisionByZero(const KernelCall& call) { throw Error(ErrorCode::kData, call.op + ": integer division by zero"); }

void Div(const KernelCall& call, const void* const* in, void* const* out) {
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    MapBroadcast<T, T, T>(call, in, out, [&](auto a, auto b) {
      if constexpr (std::is_integral_v<T>) {
        if (b == 0) DivisionByZero(call);
        return integer::Quotient(a, b);
      } else {
        return a / b;
      }
    });
  });
}

// The remainder with the sign of b, as in numpy.mod, or with fmod that of a, as in C's fmod.
void Mod(const KernelCall& call, const void* const* in, void* const* out) {
  const bool fmod = call.attributes.Int("fmod", 0) != 0;
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    MapBroadcast<T, T, T>(call, in, out, [&](auto a, auto b) {
      if constexpr (std::is_integral_v<T>) {
        if (b == 0) DivisionByZero(call);
        return integer::Remainder(a, b, fmod);
      } else {
        return fmod ? libm::Fmod(a, b) : libm::FloorMod(a, b);
      }
    });
  });
}

// A power with an exponent of another type. In the type of the base if that has the exponent, else in double; the result is rounded once.
template <typename A>
void MixedPowOf(const KernelCall& call, const void* const* in, void* const* out) {
  MapBroadcast<A, double, A>(call, in, out, [](auto x, double y) {
    using X = decltype(x);
    const X narrow = static_cast<X>(y);
    return static_cast<double>(narrow) == y || y != y ? std::pow(x, narrow) : static_cast<X>(std::pow(static_cast<double>(x), y));
  });
}

template <typename A, typename B>
void PowOf(const KernelCall& call, const void* const* in, void* const* out) {
  MapBroadcast<A, B, A>(call, in, out, [](auto x, auto y) {
    using X = decltype(x);
    if constexpr (std::is_floating_point_v<X>)
      return static_cast<X>(std::pow(x, y));
    else if constexpr (std::is_integral_v<decltype(y)>)
      return static_cast<X>(integer::Power(static_cast<uint64_t>(x), std::is_signed_v<X>, y));
    else
      return ConvertElement<X>(std::pow(static_cast<double>(x), y));
  });
}

// The result has the dtype of the base. An exponent of another dtype is widened first.
void Pow(const KernelCall& call, const void* const* in, void* const* out) {
  const DType base = call.inputs[0].dtype, exponent = call.inputs[1].dtype;
  const DType wide = exponent == base && IsFloating(base) ? base : IsInteger(base) && IsInteger(exponent) ? DType::kInt64 : DType::kFloat64;
  const Tensor exponents = exponent == wide ? Tensor() : Converted(InputView(call, in, 1), wide);
  const void* const operands[] = {in[0], exponents.defined() ? exponents.data() : in[1]};
  if (IsFloating(base)) {
    return WithFloating(base, [&]<typename A>(std::type_identity<A>) {
      if (exponent == base)
        PowOf<A, A>(call, operands, out);
      else
        MixedPowOf<A>(call, operands, out);
    });
  }
  WithInteger(base, [&]<typename A>(std::type_identity<A>) {
    if (wide == DType::kInt64)
      PowOf<A, int64_t>(call, operands, out);
    else
      PowOf<A, double>(call, operands, out);
  });
}

void BitShift(const KernelCall& call, const void* const* in, void* const* out) {
  const std::string direction = call.attributes.String("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    throw Error(ErrorCode::kAttr, "BitShift: direction '" + Escaped(direction) + "' is neither \"LEFT\" nor \"RIGHT\"");
  }
  const bool left = direction == "LEFT";
  WithInteger(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    MapBroadcast<T, T, T>(call, in, out, [=](T x, T by) { return integer::Shifted(x, by, left); });
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"Add", "", WrappingArithmetic<[](auto a, auto b) { return a + b; }>},
    {"And", "", Logic<[](bool a, bool b) { return a && b; }>},
    {"BitShift", "", BitShift},
    {"BitwiseAnd", "", Bits<[](auto a, auto b) { return a & b; }>},
    {"BitwiseOr", "", Bits<[](auto a, auto b) { return a | b; }>},
    {"BitwiseXor", "", Bits<[](auto a, auto b) { return a ^ b; }>},
    {"Div", "", Div},
    {"Equal", "", Compare<[](auto a, auto b) { return a == b; }>},
    {"Greater", "", Compare<[](auto a, auto b) { return b < a; }>},
    {"GreaterOrEqual", "", Compare<[](auto a, auto b) { return b <= a; }>},
    {"Less", "", Compare<[](auto a, auto b) { return a < b; }>},
    {"LessOrEqual", "", Compare<[](auto a, auto b) { return a <= b; }>},
    {"Mod", "", Mod},
    {"Mul", "", WrappingArithmetic<[](auto a, auto b) { return a * b; }>},
    {"Or", "", Logic<[](bool a, bool b) { return a || b; }>},
    {"Pow", "", Pow},
    {"Sub", "", WrappingArithmetic<[](auto a, auto b) { return a - b; }>},
    {"Xor", "", Logic<[](bool a, bool b) { return a != b; }>},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceBinary() { return kKernels; }

}  // namespace gradloom
