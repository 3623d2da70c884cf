// Functions of one element.
#include <numbers>

#include "compiler/ops/families.h"
#include "compiler/ops/flat_roots.h"
#include "compiler/ops/gradients.h"

namespace gradloom {
namespace {

using B = GraphBuilder;

ValueId One(B& b, ValueId like) { return ScalarLike(b, 1.0, like); }

// (1 - x)(1 + x), which does not cancel like 1 - x*x.
ValueId OneMinusSquare(B& b, ValueId x) { return b.Mul(b.Sub(One(b, x), x), b.Add(One(b, x), x)); }

ValueId OnePlusSquare(B& b, ValueId x) { return b.Add(One(b, x), b.Mul(x, x)); }

void Neg(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Neg(c.grad(0)));
}

// g / d instead of g * (1 / d) saves one rounding.
template <auto divisor>
void Quotient(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Div(c.grad(0), divisor(c.b, c.in(0), c.out(0))));
}

// g / 2y; for a norm, 0 where it is 0.
void Sqrt(GradientContext& c) {
  if (!c.needs(0)) return;
  B& b = c.b;
  const ValueId y = c.out(0);
  if (!RootIsFlatAtZero(b.graph(), c.in(0))) return c.set(0, b.Div(c.grad(0), b.Scale(y, 2.0)));
  const ValueId zero = ScalarLike(b, 0.0, y), is_zero = b.Op("Equal", {y, zero});
  c.set(0, b.Where(is_zero, zero, b.Div(c.grad(0), b.Scale(b.Where(is_zero, One(b, y), y), 2.0))));
}

constexpr uint32_t kFlat = kPointwise | kNoGradient;

constexpr Op kOps[] = {
    // At 0 the derivative is 0.
    {"Abs", "", 13, kPointwise, UnaryGradient<[](B& b, ValueId x) { return b.Op("Sign", {x}); }>},
    {"Acos", "", 22, kPointwise, Quotient<[](B& b, ValueId x, ValueId) { return b.Neg(b.Op("Sqrt", {OneMinusSquare(b, x)})); }>},
    {"Acosh", "", 22, kPointwise,
     Quotient<[](B& b, ValueId x, ValueId) { return b.Op("Sqrt", {b.Mul(b.Sub(x, One(b, x)), b.Add(x, One(b, x)))}); }>},
    {"Asin", "", 22, kPointwise, Quotient<[](B& b, ValueId x, ValueId) { return b.Op("Sqrt", {OneMinusSquare(b, x)}); }>},
    {"Asinh", "", 22, kPointwise, Quotient<[](B& b, ValueId x, ValueId) { return b.Op("Sqrt", {OnePlusSquare(b, x)}); }>},
    {"Atan", "", 22, kPointwise, Quotient<[](B& b, ValueId x, ValueId) { return OnePlusSquare(b, x); }>},
    {"Atanh", "", 22, kPointwise, Quotient<[](B& b, ValueId x, ValueId) { return OneMinusSquare(b, x); }>},
    {"BitCast", "", 26, kNoGradient},
    {"BitwiseNot", "", 18, kFlat},
    {"Ceil", "", 13, kFlat | kSteps},
    {"Cos", "", 22, kPointwise, UnaryGradient<[](B& b, ValueId x) { return b.Neg(b.Op("Sin", {x})); }>},
    {"Cosh", "", 22, kPointwise, UnaryGradient<[](B& b, ValueId x) { return b.Op("Sinh", {x}); }>},
    {"Erf", "", 13, kPointwise,
     UnaryGradient<[](B& b, ValueId x) { return b.Scale(b.Op("Exp", {b.Neg(b.Mul(x, x))}), 2 * std::numbers::inv_sqrtpi); }>},
    {"Exp", "", 13, kPointwise, UnaryGradientOfResult<[](B&, ValueId y) { return y; }>},
    {"Floor", "", 13, kFlat | kSteps},
    {"Identity", "", 25, kPointwise, IdentityGradient},
    {"IsInf", "", 20, kFlat},
    {"IsNaN", "", 20, kFlat},
    {"Log", "", 13, kPointwise, Quotient<[](B&, ValueId x, ValueId) { return x; }>},
    {"Neg", "", 13, kPointwise, Neg},
    {"Not", "", 1, kFlat},
    {"Reciprocal", "", 13, kPointwise, UnaryGradientOfResult<[](B& b, ValueId y) { return b.Neg(b.Mul(y, y)); }>},
    {"Round", "", 22, kFlat | kSteps},
    {"Sign", "", 13, kFlat | kSteps},
    {"Sin", "", 22, kPointwise, UnaryGradient<[](B& b, ValueId x) { return b.Op("Cos", {x}); }>},
    {"Sinh", "", 22, kPointwise, UnaryGradient<[](B& b, ValueId x) { return b.Op("Cosh", {x}); }>},
    {"Sqrt", "", 13, kPointwise, Sqrt},
    {"Tan", "", 22, kPointwise, UnaryGradientOfResult<[](B& b, ValueId y) { return OnePlusSquare(b, y); }>},
    {"Tanh", "", 13, kPointwise, UnaryGradientOfResult<[](B& b, ValueId y) { return b.Sub(One(b, y), b.Mul(y, y)); }>},
};

}  // namespace

std::span<const Op> UnaryOps() { return kOps; }

}  // namespace gradloom
