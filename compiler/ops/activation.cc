// Activation functions. At kinks the derivative is the one that PyTorch uses.
#include <numbers>

#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"

namespace gradloom {
namespace {

using B = GraphBuilder;

constexpr double kLeakyAlpha = 0.00999999977648258209228515625;  // 0.01 in float32, as in ONNX
constexpr double kHardSigmoidAlpha = 0.20000000298023223876953125;
constexpr double kSeluAlpha = 1.67326319217681884765625, kSeluGamma = 1.05070102214813232421875;

ValueId Const(B& b, double value, ValueId like) { return ScalarLike(b, value, like); }
ValueId Sigmoid(B& b, ValueId x) { return b.Op("Sigmoid", {x}); }
ValueId OneMinus(B& b, ValueId x) { return b.Sub(Const(b, 1.0, x), x); }
ValueId Positive(B& b, ValueId x) { return b.Op("Greater", {x, Const(b, 0.0, x)}); }

// The operand, the result and its gradient, in at least 32 bits. In 16 bits, a constant such as the gamma of Selu would be wrong by a third
// of a percent, and the square of 300 overflows.
struct Wide {
  GradientContext& c;
  B& b = c.b;

  ValueId x() const { return InAtLeast32Bits(b, c.in(0)); }
  ValueId y() const { return InAtLeast32Bits(b, c.out(0)); }
  ValueId g() const { return InAtLeast32Bits(b, c.grad(0)); }
  // Sets the gradient of the operand, rounded once.
  void Set(ValueId gradient) const { c.set(0, b.Cast(gradient, b.dtype(c.in(0)))); }
};

// exp(factor * x) for negative x, 1 otherwise. The bound keeps the unused side finite.
ValueId ExpOfNegative(B& b, ValueId x, double factor = 1.0) {
  const ValueId negative = b.Op("Min", {x, Const(b, 0.0, x)});
  return b.Op("Exp", {factor == 1.0 ? negative : b.Scale(negative, factor)});
}

// Uses the output, which the next operator keeps anyway; NaN is propagated.
void Relu(GradientContext& c) {
  if (!c.needs(0)) return;
  const ValueId zero = Const(c.b, 0.0, c.grad(0));
  c.set(0, c.b.Where(c.b.Op("LessOrEqual", {c.out(0), zero}), zero, c.grad(0)));
}

// The gradient is g where x > 0, and g * left(b, x) elsewhere.
template <typename Left>
void Sloped(GradientContext& c, const Left& left) {
  if (!c.needs(0)) return;
  const Wide w{c};
  const ValueId x = w.x(), g = w.g();
  w.Set(c.b.Where(Positive(c.b, x), g, c.b.Mul(g, left(c.b, x))));
}

void LeakyRelu(GradientContext& c) {
  Sloped(c, [alpha = c.attributes().Float("alpha", kLeakyAlpha)](B& b, ValueId x) { return Const(b, alpha, x); });
}

void Elu(GradientContext& c) {
  Sloped(c, [alpha = c.attributes().Float("alpha", 1.0)](B& b, ValueId x) { return b.Scale(ExpOfNegative(b, x), alpha); });
}

void Celu(GradientContext& c) {
  Sloped(c, [alpha = c.attributes().Float("alpha", 1.0)](B& b, ValueId x) { return ExpOfNegative(b, x, 1.0 / alpha); });
}

void Selu(GradientContext& c) {
  if (!c.needs(0)) return;
  const Wide w{c};
  B& b = c.b;
  const double alpha = c.attributes().Float("alpha", kSeluAlpha), gamma = c.attributes().Float("gamma", kSeluGamma);
  const ValueId x = w.x(), g = b.Scale(w.g(), gamma);
  w.Set(b.Where(Positive(b, x), g, b.Mul(g, b.Scale(ExpOfNegative(b, x), alpha))));
}

void PRelu(GradientContext& c) {
  B& b = c.b;
  const ValueId positive = Positive(b, c.in(0)), g = c.grad(0);
  if (c.needs(0)) c.set(0, b.Where(positive, g, b.Mul(g, c.in(1))));
  if (c.needs(1)) c.set_reduced(1, b.Where(positive, Const(b, 0.0, g), b.Mul(g, c.in(0))));
}

void ThresholdedRelu(GradientContext& c) {
  if (!c.needs(0)) return;
  const ValueId above = c.b.Op("Greater", {c.in(0), Const(c.b, c.attributes().Float("alpha", 1.0), c.in(0))});
  c.set(0, c.b.Where(above, c.grad(0), Const(c.b, 0.0, c.grad(0))));
}

void HardSigmoid(GradientContext& c) {
  if (!c.needs(0)) return;
  const Wide w{c};
  B& b = c.b;
  const ValueId y = w.y(), zero = Const(b, 0.0, y);
  const ValueId inside = b.Op("And", {Positive(b, y), b.Op("Less", {y, Const(b, 1.0, y)})});
  w.Set(b.Where(inside, b.Scale(w.g(), c.attributes().Float("alpha", kHardSigmoidAlpha)), zero));
}

void HardSwish(GradientContext& c) {
  if (!c.needs(0)) return;
  const Wide w{c};
  B& b = c.b;
  const ValueId x = w.x(), g = w.g();
  const ValueId middle = b.Mul(g, b.Add(b.Div(x, Const(b, 3.0, x)), Const(b, 0.5, x)));
  const ValueId right = b.Where(b.Op("Less", {x, Const(b, 3.0, x)}), middle, g);
  w.Set(b.Where(b.Op("LessOrEqual", {x, Const(b, -3.0, x)}), Const(b, 0.0, g), right));
}

// d/dx x s(ax) = s (1 + ax (1 - s)), s the sigmoid.
ValueId SwishDerivative(B& b, ValueId x, ValueId scaled, ValueId s) {
  return b.Mul(s, b.Add(Const(b, 1.0, x), b.Mul(scaled, OneMinus(b, s))));
}

void Swish(GradientContext& c) {
  if (!c.needs(0)) return;
  const Wide w{c};
  const double alpha = c.attributes().Float("alpha", 1.0);
  const ValueId x = w.x(), scaled = alpha == 1.0 ? x : c.b.Scale(x, alpha);
  w.Set(c.b.Mul(w.g(), SwishDerivative(c.b, x, scaled, Sigmoid(c.b, scaled))));
}

void SwiGlu(GradientContext& c) {
  const Wide w{c};
  B& b = c.b;
  const double alpha = c.attributes().Float("alpha", 1.0);
  const ValueId a = w.x(), scaled = alpha == 1.0 ? a : b.Scale(a, alpha), s = Sigmoid(b, scaled), g = w.g();
  const DType dtype = b.dtype(c.in(0));
  const auto set = [&](int i, ValueId gradient) { c.set_reduced(i, b.Cast(gradient, dtype)); };
  if (c.needs(0)) set(0, b.Mul(b.Mul(g, InAtLeast32Bits(b, c.in(1))), SwishDerivative(b, a, scaled, s)));
  if (c.needs(1)) set(1, b.Mul(g, b.Mul(a, s)));
}

ValueId GeluErf(B& b, ValueId x) {
  const ValueId cdf = b.Scale(b.Add(Const(b, 1.0, x), b.Op("Erf", {b.Scale(x, 1 / std::numbers::sqrt2)})), 0.5);
  const ValueId pdf = b.Scale(b.Op("Exp", {b.Scale(b.Mul(x, x), -0.5)}), std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  return b.Add(cdf, b.Mul(x, pdf));
}

ValueId GeluTanh(B& b, ValueId x) {
  const double k = 0.79788456080286535588, cubic = 0.044715;
  const ValueId square = b.Mul(x, x), one = Const(b, 1.0, x);
  const ValueId t = b.Op("Tanh", {b.Mul(b.Scale(x, k), b.Add(one, b.Scale(square, cubic)))});
  const ValueId inner = b.Scale(b.Add(one, b.Scale(square, 3 * cubic)), k);
  const ValueId right = b.Mul(b.Scale(x, 0.5), b.Mul(b.Sub(one, b.Mul(t, t)), inner));
  return b.Add(b.Scale(b.Add(one, t), 0.5), right);
}

void Gelu(GradientContext& c) {
  if (!c.needs(0)) return;
  const Wide w{c};
  const bool tanh = c.attributes().String("approximate", "none") == "tanh";
  w.Set(c.b.Mul(w.g(), tanh ? GeluTanh(c.b, w.x()) : GeluErf(c.b, w.x())));
}

ValueId MishDerivative(B& b, ValueId x) {
  const ValueId t = b.Op("Tanh", {b.Op("Softplus", {x})});
  return b.Add(t, b.Mul(b.Mul(x, Sigmoid(b, x)), b.Sub(Const(b, 1.0, x), b.Mul(t, t))));
}

void Softsign(GradientContext& c) {
  if (!c.needs(0)) return;
  const Wide w{c};
  const ValueId x = w.x(), d = c.b.Add(Const(c.b, 1.0, x), c.b.Op("Abs", {x}));
  w.Set(c.b.Div(w.g(), c.b.Mul(d, d)));
}

void Shrink(GradientContext& c) {
  if (!c.needs(0)) return;
  B& b = c.b;
  const double lambda = c.attributes().Float("lambd", 0.5);
  const ValueId x = c.in(0);
  const ValueId outside = b.Op("Or", {b.Op("Less", {x, Const(b, -lambda, x)}), b.Op("Greater", {x, Const(b, lambda, x)})});
  c.set(0, b.Where(outside, c.grad(0), Const(b, 0.0, x)));
}

constexpr Op kOps[] = {
    {"Celu", "", 28, kPointwise, Celu},
    {"Elu", "", 22, kPointwise, Elu},
    {"Gelu", "", 20, kPointwise, Gelu},
    {"HardSigmoid", "", 22, kPointwise, HardSigmoid},
    {"HardSwish", "", 22, kPointwise, HardSwish},
    {"LeakyRelu", "", 16, kPointwise, LeakyRelu},
    {"Mish", "", 22, kPointwise, UnaryGradient<MishDerivative>},
    {"PRelu", "", 16, kPointwise, PRelu},
    {"Relu", "", 14, kPointwise, Relu},
    {"Selu", "", 22, kPointwise, Selu},
    {"Shrink", "", 9, kPointwise, Shrink},
    {"Sigmoid", "", 13, kPointwise, UnaryGradientOfResult<[](B& b, ValueId y) { return b.Mul(y, OneMinus(b, y)); }>},
    {"Softplus", "", 22, kPointwise, UnaryGradient<[](B& b, ValueId x) { return Sigmoid(b, x); }>},
    {"Softsign", "", 22, kPointwise, Softsign},
    {"SwiGLU", "", 28, kPointwise, SwiGlu},
    {"Swish", "", 24, kPointwise, Swish},
    {"ThresholdedRelu", "", 22, kPointwise, ThresholdedRelu},
};

}  // namespace

std::span<const Op> ActivationOps() { return kOps; }

}  // namespace gradloom
