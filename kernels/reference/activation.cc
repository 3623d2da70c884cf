// Activation functions of one operand, with attributes; PRelu and SwiGLU have two.
#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"
#include "kernels/scalar/integer.h"
#include "kernels/scalar/libm.h"
#include "runtime/base/convert.h"

namespace gradloom {
namespace {

// make(attributes, T{}) returns the function for a call, in the arithmetic type of the elements.
template <auto make>
void Floating(const KernelCall& call, const void* const* in, void* const* out) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    Map(call.inputs[0].shape.elements(), In<T>(in, 0), Out<T>(out, 0), make(call.attributes, Arithmetic<T>{}));
  });
}

void Gelu(const KernelCall& call, const void* const* in, void* const* out) {
  const std::string approximate = call.attributes.String("approximate", "none");
  if (approximate == "tanh")
    return Floating<[](const Attributes&, auto) { return [](auto x) { return libm::GeluTanh(x); }; }>(call, in, out);
  if (approximate == "none") return Floating<[](const Attributes&, auto) { return [](auto x) { return libm::Gelu(x); }; }>(call, in, out);
  throw Error(ErrorCode::kAttr, "Gelu: approximate '" + Escaped(approximate) + "' is neither \"none\" nor \"tanh\"");
}

void Relu(const KernelCall& call, const void* const* in, void* const* out) {
  // NaN propagates, as in ONNX's max(0, x).
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    Map(call.inputs[0].shape.elements(), In<T>(in, 0), Out<T>(out, 0), [](auto x) { return x < 0 ? decltype(x){0} : x; });
  });
}

template <typename T>
auto Elu(const Attributes& attributes, T) {
  const T alpha = static_cast<T>(attributes.Float("alpha", 1.0));
  return [=](T x) { return libm::EluElement(x, alpha); };
}

template <typename T>
auto Celu(const Attributes& attributes, T) {
  const T alpha = static_cast<T>(attributes.Float("alpha", 1.0));
  return [=](T x) { return libm::CeluElement(x, alpha); };
}

template <typename T>
auto Selu(const Attributes& attributes, T) {
  const T alpha = static_cast<T>(attributes.Float("alpha", 1.67326319217681884765625));
  const T gamma = static_cast<T>(attributes.Float("gamma", 1.05070102214813232421875));
  return [=](T x) { return libm::SeluElement(x, alpha, gamma); };
}

template <typename T>
auto LeakyRelu(const Attributes& attributes, T) {
  const T alpha = static_cast<T>(attributes.Float("alpha", 0.00999999977648258209228515625));
  return [=](T x) { return libm::LeakyReluElement(x, alpha); };
}

template <typename T>
auto ThresholdedRelu(const Attributes& attributes, T) {
  const T alpha = static_cast<T>(attributes.Float("alpha", 1.0));
  return [=](T x) { return libm::ThresholdedReluElement(x, alpha); };
}

template <typename T>
auto HardSigmoid(const Attributes& attributes, T) {
  const T alpha = static_cast<T>(attributes.Float("alpha", 0.20000000298023223876953125)),
          beta = static_cast<T>(attributes.Float("beta", 0.5));
  return [=](T x) { return libm::HardSigmoidElement(x, alpha, beta); };
}

template <typename T>
auto Swish(const Attributes& attributes, T) {
  const T alpha = static_cast<T>(attributes.Float("alpha", 1.0));
  return [=](T x) { return x * libm::Sigmoid(alpha * x); };
}

void Shrink(const KernelCall& call, const void* const* in, void* const* out) {
  const double bias = call.attributes.Float("bias", 0.0), lambda = call.attributes.Float("lambd", 0.5);
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    Map(call.inputs[0].shape.elements(), In<T>(in, 0), Out<T>(out, 0), [=](auto x) {
      const double value = static_cast<double>(x);
      return ConvertElement<Arithmetic<T>>(value < -lambda ? value + bias : value > lambda ? value - bias : 0.0);
    });
  });
}

void PRelu(const KernelCall& call, const void* const* in, void* const* out) {
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    MapBroadcast<T, T, T>(call, in, out, [](auto x, auto slope) {
      if constexpr (std::is_integral_v<T>)
        return integer::PRelu(x, slope);
      else
        return libm::PReluElement(x, slope);
    });
  });
}

void SwiGlu(const KernelCall& call, const void* const* in, void* const* out) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const auto alpha = static_cast<Arithmetic<T>>(call.attributes.Float("alpha", 1.0));
    MapBroadcast<T, T, T>(call, in, out, [=](auto a, auto b) { return a * libm::Sigmoid(alpha * a) * b; });
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"Celu", "", Floating<[](const Attributes& a, auto t) { return Celu(a, t); }>},
    {"Elu", "", Floating<[](const Attributes& a, auto t) { return Elu(a, t); }>},
    {"Gelu", "", Gelu},
    {"HardSigmoid", "", Floating<[](const Attributes& a, auto t) { return HardSigmoid(a, t); }>},
    {"HardSwish", "", Floating<[](const Attributes&, auto) { return [](auto x) { return libm::HardSwishElement(x); }; }>},
    {"LeakyRelu", "", Floating<[](const Attributes& a, auto t) { return LeakyRelu(a, t); }>},
    {"Mish", "", Floating<[](const Attributes&, auto) { return [](auto x) { return libm::MishElement(x); }; }>},
    {"PRelu", "", PRelu},
    {"Relu", "", Relu},
    {"Selu", "", Floating<[](const Attributes& a, auto t) { return Selu(a, t); }>},
    {"Shrink", "", Shrink},
    {"Sigmoid", "", Floating<[](const Attributes&, auto) { return [](auto x) { return libm::Sigmoid(x); }; }>},
    {"Softplus", "", Floating<[](const Attributes&, auto) { return [](auto x) { return libm::Softplus(x); }; }>},
    {"Softsign", "", Floating<[](const Attributes&, auto) { return [](auto x) { return libm::SoftsignElement(x); }; }>},
    {"SwiGLU", "", SwiGlu},
    {"Swish", "", Floating<[](const Attributes& a, auto t) { return Swish(a, t); }>},
    {"ThresholdedRelu", "", Floating<[](const Attributes& a, auto t) { return ThresholdedRelu(a, t); }>},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceActivation() { return kKernels; }

}  // namespace gradloom
