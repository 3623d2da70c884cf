// Functions of one operand: arithmetic, rounding, transcendental functions, tests, logic.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"
#include "kernels/scalar/integer.h"

namespace gradloom {
namespace {

// Applies f to floating-point elements.
template <auto f>
void Floating(const KernelCall& call, const void* const* in, void* const* out) {
  WithFloating(call.inputs[0].dtype,
               [&]<typename T>(std::type_identity<T>) { Map(call.inputs[0].shape.elements(), In<T>(in, 0), Out<T>(out, 0), f); });
}

// Applies f to floating-point and integer elements.
template <auto f>
void Number(const KernelCall& call, const void* const* in, void* const* out) {
  WithNumber(call.inputs[0].dtype,
             [&]<typename T>(std::type_identity<T>) { Map(call.inputs[0].shape.elements(), In<T>(in, 0), Out<T>(out, 0), f); });
}

// A predicate on floating-point elements.
template <auto f>
void Test(const KernelCall& call, const void* const* in, void* const* out) {
  WithFloating(call.inputs[0].dtype,
               [&]<typename T>(std::type_identity<T>) { Map(call.inputs[0].shape.elements(), In<T>(in, 0), Out<bool>(out, 0), f); });
}

template <typename T>
T NegateElement(T x) {
  if constexpr (std::is_integral_v<T>)
    return integer::Negate(x);
  else
    return -x;
}

template <typename T>
T AbsElement(T x) {
  if constexpr (std::is_integral_v<T>)
    return integer::Abs(x);
  else
    return std::fabs(x);
}

template <typename T>
T SignElement(T x) {
  if constexpr (std::is_integral_v<T>)
    return integer::Sign(x);
  else
    return x != x ? x : static_cast<T>((x > 0) - (x < 0));
}

void IsInf(const KernelCall& call, const void* const* in, void* const* out) {
  const bool negative = call.attributes.Int("detect_negative", 1) != 0, positive = call.attributes.Int("detect_positive", 1) != 0;
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    Map(call.inputs[0].shape.elements(), In<T>(in, 0), Out<bool>(out, 0),
        [=](auto x) { return std::isinf(x) && (x < 0 ? negative : positive); });
  });
}

void Not(const KernelCall& call, const void* const* in, void* const* out) {
  Map(call.inputs[0].shape.elements(), In<bool>(in, 0), Out<bool>(out, 0), [](bool x) { return !x; });
}

void BitwiseNot(const KernelCall& call, const void* const* in, void* const* out) {
  WithInteger(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    Map(call.inputs[0].shape.elements(), In<T>(in, 0), Out<T>(out, 0), [](T x) { return static_cast<T>(~x); });
  });
}

void Copy(const KernelCall& call, const void* const* in, void* const* out) {
  const int64_t bytes = call.inputs[0].shape.elements() * DTypeBytes(call.inputs[0].dtype);
  if (bytes > 0) std::memcpy(out[0], in[0], static_cast<size_t>(bytes));
}

constexpr ReferenceKernel kKernels[] = {
    {"Abs", "", Number<[](auto x) { return AbsElement(x); }>},
    {"Acos", "", Floating<[](auto x) { return std::acos(x); }>},
    {"Acosh", "", Floating<[](auto x) { return std::acosh(x); }>},
    {"Asin", "", Floating<[](auto x) { return std::asin(x); }>},
    {"Asinh", "", Floating<[](auto x) { return std::asinh(x); }>},
    {"Atan", "", Floating<[](auto x) { return std::atan(x); }>},
    {"Atanh", "", Floating<[](auto x) { return std::atanh(x); }>},
    {"BitCast", "", Copy},
    {"BitwiseNot", "", BitwiseNot},
    {"Ceil", "", Floating<[](auto x) { return std::ceil(x); }>},
    {"Copy", "gradloom", Copy},
    {"Cos", "", Floating<[](auto x) { return std::cos(x); }>},
    {"Cosh", "", Floating<[](auto x) { return std::cosh(x); }>},
    {"Erf", "", Floating<[](auto x) { return std::erf(x); }>},
    {"Exp", "", Floating<[](auto x) { return std::exp(x); }>},
    {"Floor", "", Floating<[](auto x) { return std::floor(x); }>},
    {"Identity", "", Copy},
    {"Reorder", "gradloom", Copy},
    {"IsInf", "", IsInf},
    {"IsNaN", "", Test<[](auto x) { return x != x; }>},
    {"MaskGradient", "gradloom", Copy},
    {"Log", "", Floating<[](auto x) { return std::log(x); }>},
    {"Neg", "", Number<[](auto x) { return NegateElement(x); }>},
    {"Not", "", Not},
    {"Reciprocal", "", Floating<[](auto x) { return 1 / x; }>},
    {"Round", "", Floating<[](auto x) { return std::nearbyint(x); }>},
    {"Sign", "", Number<[](auto x) { return SignElement(x); }>},
    {"Sin", "", Floating<[](auto x) { return std::sin(x); }>},
    {"Sinh", "", Floating<[](auto x) { return std::sinh(x); }>},
    {"Sqrt", "", Floating<[](auto x) { return std::sqrt(x); }>},
    {"StageBoundary", "gradloom", Copy},
    {"StopGradient", "gradloom", Copy},
    {"Tan", "", Floating<[](auto x) { return std::tan(x); }>},
    {"Tanh", "", Floating<[](auto x) { return std::tanh(x); }>},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceUnary() { return kKernels; }

}  // namespace gradloom
