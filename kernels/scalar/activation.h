// The activations of recurrent layers, in float and double.
#pragma once

#include <cstdint>

#include "kernels/scalar/libm.h"

namespace gradloom {

// An activation of the ONNX list, with its constants.
struct Activation {
  enum class Kind : uint8_t {
    kSigmoid,
    kTanh,
    kRelu,
    kAffine,
    kLeakyRelu,
    kThresholdedRelu,
    kScaledTanh,
    kHardSigmoid,
    kElu,
    kSoftsign,
    kSoftplus
  };
  Kind kind = Kind::kTanh;
  double alpha = 0, beta = 0;
};

// For large -x, the exponential is infinite and the quotient 0.
template <typename A>
GRADLOOM_LIBM_FUNCTION A Logistic(A x) {
  return A(1) / (A(1) + libm::Exp(-x));
}

// f(x).
template <typename A>
GRADLOOM_LIBM_FUNCTION A Activate(const Activation& f, A x) {
  const A p = static_cast<A>(f.alpha), q = static_cast<A>(f.beta);
  switch (f.kind) {
    case Activation::Kind::kSigmoid: return Logistic(x);
    case Activation::Kind::kTanh: return libm::Tanh(x);
    case Activation::Kind::kRelu: return x < 0 ? A(0) : x;
    case Activation::Kind::kAffine: return p * x + q;
    case Activation::Kind::kLeakyRelu: return x >= 0 ? x : p * x;
    case Activation::Kind::kThresholdedRelu: return x > p ? x : A(0);
    case Activation::Kind::kScaledTanh: return p * libm::Tanh(q * x);
    case Activation::Kind::kHardSigmoid: return libm::Clamp01(p * x + q);
    case Activation::Kind::kElu: return x >= 0 ? x : p * libm::Expm1(x);
    case Activation::Kind::kSoftsign: return x / (1 + libm::Abs(x));
    case Activation::Kind::kSoftplus: return libm::Softplus(x);
  }
  return x;
}

// f'(x), given y = f(x).
template <typename A>
GRADLOOM_LIBM_FUNCTION A Slope(const Activation& f, A x, A y) {
  const A p = static_cast<A>(f.alpha), q = static_cast<A>(f.beta);
  switch (f.kind) {
    case Activation::Kind::kSigmoid: return y * (1 - y);
    case Activation::Kind::kTanh: return 1 - y * y;
    case Activation::Kind::kRelu: return x > 0 ? A(1) : A(0);
    case Activation::Kind::kAffine: return p;
    case Activation::Kind::kLeakyRelu: return x >= 0 ? A(1) : p;
    case Activation::Kind::kThresholdedRelu: return x > p ? A(1) : A(0);
    case Activation::Kind::kScaledTanh: {
      const A t = libm::Tanh(q * x);
      return p * q * (1 - t * t);
    }
    case Activation::Kind::kHardSigmoid: return y > 0 && y < 1 ? p : A(0);
    case Activation::Kind::kElu: return x >= 0 ? A(1) : y + p;
    case Activation::Kind::kSoftsign: return 1 / ((1 + libm::Abs(x)) * (1 + libm::Abs(x)));
    case Activation::Kind::kSoftplus: return Logistic(x);
  }
  return 1;
}

}  // namespace gradloom
