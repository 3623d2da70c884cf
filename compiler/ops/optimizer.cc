// Optimizers. compiler/passes/add_optimizer.h lists the states of each; kernels/catalog/update.h defines the order of operands,
// kernels/scalar/optimizers.h the arithmetic.
#include <algorithm>
#include <string>
#include <string_view>

#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"

namespace gradloom {
namespace {

constexpr int kFirstState = 6;
// The inputs of a MultiTensorUpdate that all parameters share, and the maximum number of parameters.
enum : int { kMultiTensorLr, kMultiTensorStep, kMultiTensorClip, kMultiTensorApply, kMultiTensorParameters };
constexpr int kMaxTensors = 32;

// Operands: parameter, gradient, lr, step, clip?, apply?, states.... Outputs have the types of the values that they replace. The gradient
// of a float32 parameter may have a 16-bit type.
std::vector<ValueType> UpdateTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, kFirstState, kFirstState + 3, 4);
  ExpectFloating(graph, node, 0);
  const ValueType parameter = InputType(graph, node, 0);
  const DType gradient = InputType(graph, node, 1).dtype;
  const bool narrow = parameter.dtype == DType::kFloat32 && (gradient == DType::kFloat16 || gradient == DType::kBfloat16);
  ExpectInput(graph, node, 1, {narrow ? gradient : parameter.dtype, parameter.shape});
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

// Operands: lr, step, clip?, apply?, then for each parameter: itself, its gradient and its states (kernels/catalog/update.h).
std::vector<ValueType> MultiTensorUpdateTypes(const Graph& graph, const Node& node) {
  const std::string update = node.attributes.String("update", "");
  const std::string_view known[] = {"Sgd", "Adam", "RmsProp", "Adagrad", "Adadelta", "Adamax"};
  if (std::find(std::begin(known), std::end(known), update) == std::end(known))
    throw Error(ErrorCode::kAttr, "optimizer '" + Escaped(update) + "' does not support several tensors", Describe(node));
  const int operands = static_cast<int>(node.inputs.size()) - kMultiTensorParameters, results = static_cast<int>(node.outputs.size());
  const int tensors = operands - results;
  if (tensors <= 0 || tensors > kMaxTensors || results < tensors || results > 4 * tensors || results % tensors != 0) {
    throw Error(ErrorCode::kArity, std::to_string(operands) + " operands and " + std::to_string(results) + " outputs do not match",
                Describe(node));
  }
  const int states = results / tensors - 1;
  ExpectFloating(graph, node, kMultiTensorLr);
  ExpectInput(graph, node, kMultiTensorLr, {InputType(graph, node, kMultiTensorLr).dtype, Shape{}});
  ExpectInput(graph, node, kMultiTensorStep, {DType::kInt64, Shape{}});
  if (HasInput(node, kMultiTensorApply)) ExpectInput(graph, node, kMultiTensorApply, {DType::kBool, Shape{}});
  std::vector<ValueType> types;
  for (int tensor = 0; tensor < tensors; ++tensor) {
    const int first = kMultiTensorParameters + tensor * (2 + states);
    ExpectFloating(graph, node, first);
    const ValueType parameter = InputType(graph, node, first);
    if (parameter.dtype != InputType(graph, node, kMultiTensorParameters).dtype)
      throw Error(ErrorCode::kType, "the parameters must have the same type", Describe(node));
    for (int k = 1; k < 2 + states; ++k) ExpectInput(graph, node, first + k, parameter);
    types.insert(types.end(), static_cast<size_t>(1 + states), parameter);
  }
  if (HasInput(node, kMultiTensorClip)) ExpectInput(graph, node, kMultiTensorClip, {types[0].dtype, Shape{}});
  return types;
}

// Operands: parameter, direction, lr, sum of squares of the parameter, sum of squares of the direction, apply?.
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
    // Its first output is the direction, not a next value: LambApply computes that.
    Update("LambDirection"),
    {.name = "LambApply", .domain = kGradloomDomain, .traits = kUpdate, .infer = LambApplyTypes},
    // Created by join_updates.
    {.name = "MultiTensorUpdate", .domain = kGradloomDomain, .traits = kUpdate, .infer = MultiTensorUpdateTypes},
};

}  // namespace

std::span<const Op> OptimizerOps() { return kOps; }

}  // namespace gradloom
