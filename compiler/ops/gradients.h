// Functions that gradients of several families, and losses, share.
#pragma once

#include <vector>

#include "compiler/ops/op.h"

namespace gradloom {

// A scalar constant of the dtype of `like`.
inline ValueId ScalarLike(GraphBuilder& b, double value, ValueId like) { return b.Scalar(value, b.dtype(like)); }

// In float32 if it has 16 bits: sums of many elements, their number, and squares are beyond what 16 bits hold.
ValueId InAtLeast32Bits(GraphBuilder& b, ValueId value);

// A gradient divided by a number of elements. In 16 bits it is computed in float32 and rounded once: the reciprocal of the number has few
// or no digits in 16 bits.
ValueId DividedByCount(GraphBuilder& b, ValueId gradient, double count);

// The integers of constant operand i, or `absent` if it is absent. Throws Error(kUnsupported) if its value is not known at compile time.
std::vector<int64_t> ConstantInts(const GradientContext& c, int i, const std::vector<int64_t>& absent = {});

// A gradient times a derivative, of the dtype of the gradient. A derivative of float32 and a gradient of 16 bits are multiplied in float32
// and rounded once.
ValueId TimesDerivative(GraphBuilder& b, ValueId gradient, ValueId derivative);

// The gradient of a function of one operand: the gradient of the output times derivative(b, x), computed in at least 32 bits.
template <auto derivative>
void UnaryGradient(GradientContext& c) {
  if (c.needs(0)) c.set(0, TimesDerivative(c.b, c.grad(0), derivative(c.b, InAtLeast32Bits(c.b, c.in(0)))));
}

// The same with derivative(b, y), of the result y.
template <auto derivative>
void UnaryGradientOfResult(GradientContext& c) {
  if (c.needs(0)) c.set(0, TimesDerivative(c.b, c.grad(0), derivative(c.b, InAtLeast32Bits(c.b, c.out(0)))));
}

// The gradient of an operator that only changes the shape.
void ReshapeGradient(GradientContext& c);

// The gradient of a copy.
void IdentityGradient(GradientContext& c);

// The cost of a node with this number of flops that moves each operand once.
Cost CostWithFlops(const Graph& graph, const Node& node, double flops);

}  // namespace gradloom
