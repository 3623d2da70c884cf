// Functions that gradients of several families share.
#pragma once

#include <vector>

#include "compiler/ops/op.h"

namespace gradloom {

// A scalar constant of the dtype of `like`.
inline ValueId ScalarLike(GraphBuilder& b, double value, ValueId like) { return b.Scalar(value, b.dtype(like)); }

// The integers of constant operand i, or `absent` if it is absent. Throws Error(kUnsupported) if its value is not known at compile time.
std::vector<int64_t> ConstantInts(const GradientContext& c, int i, const std::vector<int64_t>& absent = {});

// The gradient of a function of one operand: the gradient of the output times derivative(b, x, y).
template <auto derivative>
void UnaryGradient(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Mul(c.grad(0), derivative(c.b, c.in(0), c.out(0))));
}

// The gradient of an operator that only changes the shape.
void ReshapeGradient(GradientContext& c);

// The gradient of a copy.
void IdentityGradient(GradientContext& c);

// The cost of a node with this number of flops that moves each operand once.
Cost CostWithFlops(const Graph& graph, const Node& node, double flops);

}  // namespace gradloom
