// Resize is linear in X: its gradient is the transposed map, an operator of ours.
#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"

namespace gradloom {
namespace {

void ResizeGradient(GradientContext& context) {
  Attributes attributes = context.attributes();
  attributes.set("input_shape", context.b.shape(context.in(0)).dims());
  context.set(0, context.b.Own("ResizeGrad", {context.grad(0), context.in(1), context.in(2), context.in(3)}, attributes));
}

std::vector<ValueType> ResizeGradTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 4, 4, 1);
  ExpectFloating(graph, node, 0);
  const ValueType dy = InputType(graph, node, 0);
  const Shape shape(node.attributes.Ints("input_shape"));
  if (shape.rank() != dy.shape.rank()) {
    throw Error(ErrorCode::kShape, "the gradient " + dy.ToString() + " does not match attribute 'input_shape' " + shape.ToString(),
                Describe(node));
  }
  return {{dy.dtype, shape}};
}

constexpr Op kOps[] = {
    {.name = "Resize", .since_version = 13, .gradient = ResizeGradient, .samples = "0.>0"},
    {.name = "ResizeGrad", .domain = kGradloomDomain, .infer = ResizeGradTypes, .samples = "0.>0"},
};

}  // namespace

std::span<const Op> ResizeOps() { return kOps; }

}  // namespace gradloom
