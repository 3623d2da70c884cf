// Optimizers. compiler/passes/add_optimizer.h says which states each has; kernels/catalog/update.h has the
// order of operands, kernels/scalar/optimizers.h the arithmetic.
#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"

namespace gradloom {
namespace {

constexpr int kFirstState = 6;

// (parameter, gradient, lr, step, clip?, apply?, states...): outputs have the types of what they replace.
std::vector<ValueType> UpdateTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, kFirstState, kFirstState + 3, 4);
  ExpectFloating(graph, node, 0);
  const ValueType parameter = InputType(graph, node, 0);
  ExpectInput(graph, node, 1, parameter);
  ExpectFloating(graph, node, 2);
  ExpectInput(graph, node, 2, {InputType(graph, node, 2).dtype, Shape{}});
  ExpectInput(graph, node, 3, {DType::kInt64, Shape{}});
  if (HasInput(node, 4)) ExpectInput(graph, node, 4, {parameter.dtype, Shape{}});
  if (HasInput(node, 5)) ExpectInput(graph, node, 5, {DType::kBool, Shape{}});
  for (int i = kFirstState; i < static_cast<int>(node.inputs.size()); ++i) ExpectInput(graph, node, i, parameter);
  const size_t states = node.inputs.size() - kFirstState;
  if (node.outputs.size() != 1 + states) {
    throw Error(ErrorCode::kArity, std::to_string(states) + " states need " + std::to_string(1 + states) + " outputs", Describe(node));
  }
  return std::vector<ValueType>(node.outputs.size(), parameter);
}

// (parameter, direction, lr, squares of the parameter, squares of the direction, apply?).
std::vector<ValueType> LambApplyTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 5, 6, 1);
  ExpectFloating(graph, node, 0);
  const ValueType parameter = InputType(graph, node, 0);
  ExpectInput(graph, node, 1, parameter);
  ExpectInput(graph, node, 2, {InputType(graph, node, 2).dtype, Shape{}});
  for (int i : {3, 4}) ExpectInput(graph, node, i, {parameter.dtype, Shape{}});
  if (HasInput(node, 5)) ExpectInput(graph, node, 5, {DType::kBool, Shape{}});
  return {parameter};
}

constexpr Op Update(std::string_view name) { return {.name = name, .domain = kGradloomDomain, .traits = kUpdate, .infer = UpdateTypes}; }

constexpr Op kOps[] = {
    Update("Sgd"),
    Update("Adam"),
    Update("RmsProp"),
    Update("Adagrad"),
    Update("Adadelta"),
    Update("Adamax"),
    // Its first output is the direction, no next value: LambApply makes that.
    Update("LambDirection"),
    {.name = "LambApply", .domain = kGradloomDomain, .traits = kUpdate, .infer = LambApplyTypes},
};

}  // namespace

std::span<const Op> OptimizerOps() { return kOps; }

}  // namespace gradloom
