// Optimizers. compiler/passes/update/add_optimizer.h lists the states of each; runtime/base/update_form.h defines the order of operands,
// kernels/scalar/optimizers.h the arithmetic.
#include <algorithm>
#include <string>
#include <string_view>

#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"
#include "runtime/base/update_form.h"

namespace gradloom {
namespace {

// The type of the parameters' copies that the node writes; kUndefined: none.
DType CopyType(const Node& node, DType parameter) {
  const auto type = static_cast<DType>(node.attributes.Int("copy_type", static_cast<int64_t>(DType::kUndefined)));
  if (type == DType::kUndefined) return type;
  if (!Is16BitFloat(type) || Is16BitFloat(parameter) || node.op == "LambDirection")
    throw Error(ErrorCode::kAttr, "copy_type is not a type of 16 bits to which a parameter is rounded", Describe(node));
  return type;
}

// The gradient of a float32 parameter may have a 16-bit type.
void ExpectGradient(const Graph& graph, const Node& node, int i, const ValueType& parameter) {
  const DType gradient = InputType(graph, node, i).dtype;
  const bool narrow = parameter.dtype == DType::kFloat32 && Is16BitFloat(gradient);
  ExpectInput(graph, node, i, {narrow ? gradient : parameter.dtype, parameter.shape});
}

// Operands: parameter, gradient, lr, step, clip?, apply?, states.... Outputs have the types of the values that they replace; a copy has the
// attribute's.
std::vector<ValueType> UpdateTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, kUpdateStates, kUpdateStates + kMaxUpdateStates, kMaxUpdateStates + 2);
  ExpectFloating(graph, node, kUpdateParameter);
  const ValueType parameter = InputType(graph, node, kUpdateParameter);
  ExpectGradient(graph, node, kUpdateGradient, parameter);
  ExpectFloating(graph, node, kUpdateLr);
  ExpectInput(graph, node, kUpdateLr, {InputType(graph, node, kUpdateLr).dtype, Shape{}});
  ExpectInput(graph, node, kUpdateStep, {DType::kInt64, Shape{}});
  if (HasInput(node, kUpdateClip)) ExpectInput(graph, node, kUpdateClip, {parameter.dtype, Shape{}});
  if (HasInput(node, kUpdateApply)) ExpectInput(graph, node, kUpdateApply, {DType::kBool, Shape{}});
  for (int i = kUpdateStates; i < static_cast<int>(node.inputs.size()); ++i) ExpectInput(graph, node, i, parameter);
  const size_t states = node.inputs.size() - kUpdateStates;
  std::vector<ValueType> types(1 + states, parameter);
  if (const DType copy = CopyType(node, parameter.dtype); copy != DType::kUndefined) types.push_back({copy, parameter.shape});
  if (node.outputs.size() != types.size()) {
    throw Error(ErrorCode::kArity, std::to_string(states) + " states need " + std::to_string(types.size()) + " outputs", Describe(node));
  }
  return types;
}

// Operands: lr, step, clip?, apply?, then for each parameter: itself, its gradient and its states. Outputs: runtime/base/update_form.h.
std::vector<ValueType> MultiTensorUpdateTypes(const Graph& graph, const Node& node) {
  const std::string update = node.attributes.String("update", "");
  const std::string_view known[] = {"Sgd", "Adam", "NAdam", "RAdam", "Lion", "RmsProp", "Adagrad", "Adadelta", "Adamax", "MovingAverage"};
  if (std::find(std::begin(known), std::end(known), update) == std::end(known))
    throw Error(ErrorCode::kAttr, "optimizer '" + Escaped(update) + "' does not support several tensors", Describe(node));
  const int64_t tensors = node.attributes.Int("tensors", 0);
  const int operands = static_cast<int>(node.inputs.size()) - kMultiTensorParameters;
  const DType copy = CopyType(node, InputType(graph, node, kMultiTensorParameters).dtype);
  const int64_t results = static_cast<int64_t>(node.outputs.size()) - (copy == DType::kUndefined ? 0 : tensors);
  if (tensors <= 0 || tensors > kMaxTensors || operands - results != tensors || results < tensors ||
      results > (1 + kMaxUpdateStates) * tensors || results % tensors != 0) {
    throw Error(ErrorCode::kArity,
                std::to_string(operands) + " operands and " + std::to_string(node.outputs.size()) + " outputs do not match",
                Describe(node));
  }
  const auto states = static_cast<int>(results / tensors) - 1;
  ExpectFloating(graph, node, kMultiTensorLr);
  ExpectInput(graph, node, kMultiTensorLr, {InputType(graph, node, kMultiTensorLr).dtype, Shape{}});
  ExpectInput(graph, node, kMultiTensorStep, {DType::kInt64, Shape{}});
  if (HasInput(node, kMultiTensorApply)) ExpectInput(graph, node, kMultiTensorApply, {DType::kBool, Shape{}});
  std::vector<ValueType> types, copies;
  for (int tensor = 0; tensor < tensors; ++tensor) {
    const int first = kMultiTensorParameters + tensor * (2 + states);
    ExpectFloating(graph, node, first);
    const ValueType parameter = InputType(graph, node, first);
    if (parameter.dtype != InputType(graph, node, kMultiTensorParameters).dtype)
      throw Error(ErrorCode::kType, "the parameters must have the same type", Describe(node));
    ExpectGradient(graph, node, first + 1, parameter);
    for (int k = 2; k < 2 + states; ++k) ExpectInput(graph, node, first + k, parameter);
    types.insert(types.end(), static_cast<size_t>(1 + states), parameter);
    if (copy != DType::kUndefined) copies.push_back({copy, parameter.shape});
  }
  types.insert(types.end(), copies.begin(), copies.end());
  if (HasInput(node, kMultiTensorClip)) ExpectInput(graph, node, kMultiTensorClip, {types[0].dtype, Shape{}});
  return types;
}

// Operands: parameter, direction, lr, sum of squares of the parameter, sum of squares of the direction, apply?.
std::vector<ValueType> LambApplyTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, kLambApply, 6, 2);
  ExpectFloating(graph, node, kLambParameter);
  const ValueType parameter = InputType(graph, node, kLambParameter);
  ExpectInput(graph, node, kLambDirection, parameter);
  ExpectInput(graph, node, kLambLr, {InputType(graph, node, kLambLr).dtype, Shape{}});
  for (int i : {kLambParameterSquares, kLambDirectionSquares}) ExpectInput(graph, node, i, {parameter.dtype, Shape{}});
  if (HasInput(node, kLambApply)) ExpectInput(graph, node, kLambApply, {DType::kBool, Shape{}});
  std::vector<ValueType> types{parameter};
  if (const DType copy = CopyType(node, parameter.dtype); copy != DType::kUndefined) types.push_back({copy, parameter.shape});
  if (node.outputs.size() != types.size())
    throw Error(ErrorCode::kArity, "needs " + std::to_string(types.size()) + " outputs", Describe(node));
  return types;
}

constexpr Op Update(std::string_view name) { return {.name = name, .domain = kGradloomDomain, .traits = kUpdate, .infer = UpdateTypes}; }

constexpr Op kOps[] = {
    Update("Sgd"),
    Update("Adam"),
    Update("NAdam"),
    Update("RAdam"),
    Update("Lion"),
    Update("RmsProp"),
    Update("Adagrad"),
    Update("Adadelta"),
    Update("Adamax"),
    Update("MovingAverage"),
    // Its first output is the direction, not a next value: LambApply computes that.
    Update("LambDirection"),
    {.name = "LambApply", .domain = kGradloomDomain, .traits = kUpdate, .infer = LambApplyTypes},
    // Created by join_updates.
    {.name = "MultiTensorUpdate", .domain = kGradloomDomain, .traits = kUpdate, .infer = MultiTensorUpdateTypes},
};

}  // namespace

std::span<const Op> OptimizerOps() { return kOps; }

}  // namespace gradloom
