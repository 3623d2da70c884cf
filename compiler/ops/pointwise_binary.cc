// Broadcasting functions of two or more operands, selection, clipping, and casts.
#include "compiler/graph/constants.h"
#include "compiler/ops/families.h"
#include "compiler/ops/flat_roots.h"
#include "compiler/ops/gradients.h"

namespace gradloom {
namespace {

using B = GraphBuilder;

void Add(GradientContext& c) {
  for (int i = 0; i < 2; ++i) {
    if (c.needs(i)) c.set_reduced(i, c.grad(0));
  }
}

void Sub(GradientContext& c) {
  if (c.needs(0)) c.set_reduced(0, c.grad(0));
  // Sums before negating, which then concerns fewer elements.
  if (c.needs(1)) c.set(1, c.b.Neg(c.b.ReduceTo(c.grad(0), Shape(c.b.shape(c.in(1))))));
}

void Mul(GradientContext& c) {
  if (c.needs(0)) c.set_reduced(0, c.b.Mul(c.grad(0), c.in(1)));
  if (c.needs(1)) c.set_reduced(1, c.b.Mul(c.grad(0), c.in(0)));
}

void Div(GradientContext& c) {
  B& b = c.b;
  if (c.needs(0)) c.set_reduced(0, b.Div(c.grad(0), c.in(1)));
  if (c.needs(1)) c.set_reduced(1, b.Neg(b.Mul(c.grad(0), b.Div(c.out(0), c.in(1)))));
}

// The derivative for a constant exponent: exponent * base^(exponent - 1), and 0 for exponent 0 whatever the base.
ValueId PowDerivative(B& b, ValueId x, double exponent) {
  if (exponent == 2.0) return b.Scale(x, 2.0);
  if (exponent == 3.0) return b.Scale(b.Mul(x, x), 3.0);
  return b.Scale(b.Op("Pow", {x, ScalarLike(b, exponent - 1, x)}), exponent);
}

void PowBase(GradientContext& c) {
  B& b = c.b;
  const ValueId x = c.in(0), g = c.grad(0);
  if (const auto exponent = UniformConstant(b.graph(), c.in(1))) {
    // Zeros as in PyTorch: weight decay applies to parameters with a gradient, and those without one do not change.
    if (*exponent == 0.0) return c.set(0, b.Zeros(b.graph().type(x)));
    if (*exponent > 0.0 && *exponent < 1.0 && RootIsFlatAtZero(b.graph(), x)) {
      // A norm that is written as a root has slope 0 where it is 0.
      const ValueId zero = ScalarLike(b, 0.0, x), is_zero = b.Op("Equal", {x, zero}), base = b.Where(is_zero, ScalarLike(b, 1.0, x), x);
      return c.set_reduced(0, b.Where(is_zero, zero, b.Mul(g, PowDerivative(b, base, *exponent))));
    }
    return c.set_reduced(0, *exponent == 1.0 ? g : b.Mul(g, PowDerivative(b, x, *exponent)));
  }
  const ValueId y = b.Cast(c.in(1), b.dtype(x)), one = ScalarLike(b, 1.0, x), zero = ScalarLike(b, 0.0, x);
  const ValueId slope = b.Mul(g, b.Mul(y, b.Op("Pow", {x, b.Sub(y, one)})));
  c.set_reduced(0, b.Where(b.Op("Equal", {y, zero}), zero, slope));
}

// base^exponent * log(base), or 0 where the base is 0 and the exponent is not negative.
void PowExponent(GradientContext& c) {
  B& b = c.b;
  const ValueId x = c.in(0), y = b.Cast(c.in(1), b.dtype(x)), zero = ScalarLike(b, 0.0, x), one = ScalarLike(b, 1.0, x);
  const ValueId at_zero = b.Op("And", {b.Op("Equal", {x, zero}), b.Op("GreaterOrEqual", {y, zero})});
  // Log of 1 there, since a logarithm of 0 on the unused side would spoil second derivatives.
  const ValueId slope = b.Mul(c.out(0), b.Op("Log", {b.Where(at_zero, one, x)}));
  const ValueId gradient = b.Mul(c.grad(0), b.Where(at_zero, zero, slope));
  c.set_reduced(1, b.Cast(gradient, b.dtype(c.in(1))));
}

void Pow(GradientContext& c) {
  if (c.needs(0)) PowBase(c);
  if (c.needs(1)) PowExponent(c);
}

// The gradient of a - q b with a constant quotient q.
void Mod(GradientContext& c) {
  B& b = c.b;
  if (c.needs(0)) c.set_reduced(0, c.grad(0));
  if (!c.needs(1)) return;
  const ValueId quotient = b.Op("Round", {b.Div(b.Sub(c.in(0), c.out(0)), c.in(1))});
  c.set_reduced(1, b.Neg(b.Mul(c.grad(0), quotient)));
}

// With two operands, the gradient goes to the selected one, or half to each if they are equal.
template <bool kLargest>
void Extreme2(GradientContext& c) {
  B& b = c.b;
  const ValueId g = c.grad(0), tie = b.Op("Equal", {c.in(0), c.in(1)}), half = b.Scale(g, 0.5), zero = ScalarLike(b, 0.0, g);
  for (int i = 0; i < 2; ++i) {
    if (!c.needs(i)) continue;
    const ValueId wins = b.Op(kLargest ? "Greater" : "Less", {c.in(i), c.in(1 - i)});
    c.set_reduced(i, b.Where(tie, half, b.Where(wins, g, zero)));
  }
}

// The gradient is shared equally by all operands that equal the result.
template <bool kLargest>
void Extreme(GradientContext& c) {
  B& b = c.b;
  if (c.num_inputs() == 1) return IdentityGradient(c);
  if (c.num_inputs() == 2) return Extreme2<kLargest>(c);
  std::vector<ValueId> equal;
  for (int i = 0; i < c.num_inputs(); ++i) equal.push_back(b.Cast(b.Op("Equal", {c.in(i), c.out(0)}), b.dtype(c.out(0))));
  const ValueId share = b.Div(c.grad(0), b.Op("Sum", equal));
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.needs(i)) c.set_reduced(i, b.Mul(share, equal[static_cast<size_t>(i)]));
  }
}

void Sum(GradientContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.needs(i)) c.set_reduced(i, c.grad(0));
  }
}

void Mean(GradientContext& c) {
  const ValueId share = DividedByCount(c.b, c.grad(0), c.num_inputs());
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.needs(i)) c.set_reduced(i, share);
  }
}

void Where(GradientContext& c) {
  const ValueId g = c.grad(0), zero = ScalarLike(c.b, 0.0, g);
  if (c.needs(1)) c.set_reduced(1, c.b.Where(c.in(0), g, zero));
  if (c.needs(2)) c.set_reduced(2, c.b.Where(c.in(0), zero, g));
}

// The gradient only passes strictly between the bounds, as in PyTorch's clamp and hardtanh.
void Clip(GradientContext& c) {
  B& b = c.b;
  const ValueId x = c.in(0), g = c.grad(0), low = c.in(1), high = c.in(2), zero = ScalarLike(b, 0.0, g);
  const ValueId below = low == kNoValue ? kNoValue : b.Op("LessOrEqual", {x, low});
  const ValueId above = high == kNoValue ? kNoValue : b.Op("GreaterOrEqual", {x, high});
  if (c.needs(0)) {
    ValueId gradient = g;
    if (below != kNoValue) gradient = b.Where(below, zero, gradient);
    if (above != kNoValue) gradient = b.Where(above, zero, gradient);
    c.set(0, gradient);
  }
  // If low > high, the result is high everywhere.
  const ValueId crossed = low != kNoValue && high != kNoValue ? b.Op("Greater", {low, high}) : kNoValue;
  if (c.needs(1)) {
    const ValueId to_low = b.Where(below, g, zero);
    c.set_reduced(1, crossed == kNoValue ? to_low : b.Where(crossed, zero, to_low));
  }
  if (c.needs(2)) {
    const ValueId clipped = crossed == kNoValue ? above : b.Op("Or", {above, crossed});
    c.set_reduced(2, b.Where(clipped, g, zero));
  }
}

void Cast(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Cast(c.grad(0), c.b.dtype(c.in(0))));
}

constexpr uint32_t kFlat = kPointwise | kNoGradient;
constexpr uint32_t kSymmetric = kPointwise | kCommutative;

constexpr Op kOps[] = {
    {"Add", "", 14, kSymmetric, Add},
    {"And", "", 7, kFlat | kCommutative},
    {"BitShift", "", 28, kFlat},
    {"BitwiseAnd", "", 18, kFlat | kCommutative},
    {"BitwiseOr", "", 18, kFlat | kCommutative},
    {"BitwiseXor", "", 18, kFlat | kCommutative},
    {"Cast", "", 28, kPointwise, Cast},
    {"CastLike", "", 25, kPointwise, Cast},
    {"Clip", "", 13, kPointwise, Clip},
    {"Div", "", 14, kPointwise, Div},
    {"Equal", "", 19, kFlat | kCommutative},
    {"Greater", "", 13, kFlat},
    {"GreaterOrEqual", "", 16, kFlat},
    {"Less", "", 13, kFlat},
    {"LessOrEqual", "", 16, kFlat},
    {"Max", "", 13, kPointwise, Extreme<true>},
    {"Mean", "", 13, kPointwise, Mean},
    {"Min", "", 13, kPointwise, Extreme<false>},
    {"Mod", "", 28, kPointwise, Mod},
    {"Mul", "", 14, kSymmetric, Mul},
    {"Or", "", 7, kFlat | kCommutative},
    {"Pow", "", 15, kPointwise, Pow},
    {"Sub", "", 14, kPointwise, Sub},
    {"Sum", "", 13, kPointwise, Sum},
    {"Where", "", 16, kPointwise, Where},
    {"Xor", "", 7, kFlat | kCommutative},
};

}  // namespace

std::span<const Op> BinaryOps() { return kOps; }

}  // namespace gradloom
