//   gradloom.Derivative(y, named..., at...) {wanted} -> (dy...): made of ONNX's Gradient, and gone before anything is computed
//     (passes/expand_derivatives). As many `at` as `named`: y as a function of the named values, each held for independent of the others,
//     is differentiated by the first `wanted` of them where they are `at`; the gradients of the sum of y have the types of these.
//   gradloom.StopGradient(x) -> y: x, through which nothing is differentiated; an Identity behind differentiation (passes/differentiate).
#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"

namespace gradloom {
namespace {

std::vector<ValueType> InferDerivative(const Graph& graph, const Node& node) {
  const auto operands = static_cast<int>(node.inputs.size() - 1) / 2;
  const auto wanted = static_cast<int>(node.attributes.Int("wanted", 0));
  ExpectFloating(graph, node, 0);
  std::vector<ValueType> types;
  for (int i = 0; i < operands; ++i) {
    const ValueType type = InputType(graph, node, 1 + i);
    ExpectInput(graph, node, 1 + operands + i, type);
    if (i >= wanted) continue;
    ExpectFloating(graph, node, 1 + i);
    types.push_back(type);
  }
  return OutputTypes(node, std::move(types));
}

std::vector<ValueType> InferStopGradient(const Graph& graph, const Node& node) {
  ExpectArity(node, 1, 1, 1);
  return {InputType(graph, node, 0)};
}

const Op kOps[] = {
    {.name = "Derivative", .domain = kGradloomDomain, .infer = InferDerivative},
    {.name = "StopGradient", .domain = kGradloomDomain, .traits = kPointwise | kNoGradient, .infer = InferStopGradient},
};

}  // namespace

std::span<const Op> DerivativeOps() { return kOps; }

}  // namespace gradloom
