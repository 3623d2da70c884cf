#include "runtime/plan/verify_numbers.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <optional>
#include <span>
#include <variant>

#include "kernels/catalog/pointwise_tensors.h"
#include "kernels/catalog/update.h"
#include "runtime/base/error.h"
#include "runtime/base/half.h"
#include "runtime/base/views.h"
#include "runtime/plan/verify_scope.h"

namespace gradloom::verify {

ValueKey& ValueKey::Add(const Tensor& tensor) {
  Add(static_cast<int64_t>(tensor.dtype())).Add(tensor.shape());
  return Add(std::string_view(static_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes())));
}

ValueKey& ValueKey::Add(const Attributes& attributes) {
  for (const auto& [name, value] : attributes) {
    Add(name).Add(static_cast<int64_t>(value.index()));
    std::visit([this](const auto& given) { Add(given); }, value);
  }
  return *this;
}

int ValueNumbers::NumberOf(const std::string& text) {
  const auto [found, fresh] = numbers_.emplace(text, next_);
  next_ += fresh ? 1 : 0;
  return found->second;
}

Value ValueNumbers::Number(float value) {
  const Value made = Of(ValueKey("number").Add(int64_t{std::bit_cast<int32_t>(value)}));
  scalars_.emplace(made.number, value);
  return made;
}

// Whether the value is known to be one of this 16-bit type.
bool ValueNumbers::IsNarrow(const Value& value, DType dtype) const {
  if (const auto scalar = scalars_.find(value.number); scalar != scalars_.end()) {
    const float number = scalar->second;
    return (dtype == DType::kFloat16 ? float{Half(number)} : float{Bfloat16(number)}) == number;
  }
  const auto narrow = narrow_.find(value.number);
  return narrow != narrow_.end() && narrow->second == dtype;
}

Value ValueNumbers::Rounded(const Value& value, DType dtype) {
  if (IsNarrow(value, dtype)) return value;
  const Value rounded = Of(ValueKey("rounded").Add(value).Add(static_cast<int64_t>(dtype)));
  narrow_[rounded.number] = dtype;
  return rounded;
}

std::vector<Value> ValueNumbers::ResultsOf(const KernelCall& call, const std::vector<Value>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (Is16BitFloat(call.inputs[i].dtype)) narrow_[inputs[i].number] = call.inputs[i].dtype;
  }
  const bool moves = KeepsElements(call.domain, call.op) || IsReorder(call.domain, call.op);
  if (call.outputs.size() == 1 && !inputs.empty() && moves) return {inputs[0]};
  const auto present = [](const OperandType& output) { return output.present(); };
  if (!std::all_of(call.outputs.begin(), call.outputs.end(), present)) return ResultsOfAny(call, inputs);
  // Its kernel has accepted the call, but need not have looked at its attributes.
  try {
    if (call.domain == "gradloom" && call.op == "MultiTensorUpdate" && TensorsOf(call) > 0) return ResultsOfUpdates(call, inputs);
    if (call.domain == "gradloom" && call.op == "FusedTensors" && FusedTensorsOf(call) > 0) return ResultsOfTensors(call, inputs);
    if (const std::optional<PointwiseProgram> program = PointwiseProgramOf(call)) return ResultsOfFunctions(*program, call, inputs);
  } catch (const Error&) {
  }
  return ResultsOfAny(call, inputs);
}

std::vector<Value> ValueNumbers::ResultsOfAny(const KernelCall& call, const std::vector<Value>& inputs) {
  ValueKey key("launch");
  key.Add(call.domain).Add(call.op).Add(call.attributes).Add(static_cast<int64_t>(inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    key.Add(static_cast<int64_t>(call.inputs[i].dtype));
    if (call.inputs[i].present()) key.Add(call.inputs[i].shape).Add(inputs[i]);
  }
  for (const OperandType& output : call.outputs) key.Add(static_cast<int64_t>(output.dtype)).Add(output.shape);
  const Value all = Of(key);
  std::vector<Value> results;
  for (size_t k = 0; k < call.outputs.size(); ++k) results.push_back(Of(ValueKey("output").Add(all).Add(static_cast<int64_t>(k))));
  return results;
}

// Values are numbered without their shapes. An operand with one element, or as many as the results, is the same in each shape.
std::vector<Value> ValueNumbers::ResultsOfFunctions(const PointwiseProgram& program, const KernelCall& call,
                                                    const std::vector<Value>& inputs) {
  const Shape& shape = call.outputs[0].shape;
  std::vector<Value> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const OperandType& type = call.inputs[i];
    const bool is_repeated = type.present() && type.shape.elements() != 1 && type.shape.elements() != shape.elements();
    operands.push_back(is_repeated ? Of(ValueKey("repeated").Add(inputs[i]).Add(type.shape).Add(shape)) : inputs[i]);
    if (is_repeated && Is16BitFloat(type.dtype)) narrow_[operands.back().number] = type.dtype;
  }
  for (float constant : program.constants) operands.push_back(Number(constant));
  for (const PointwiseProgram::Instruction& instruction : program.instructions) operands.push_back(ResultOf(instruction, operands));
  std::vector<Value> results;
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    const Value& value = operands[static_cast<size_t>(program.outputs[k])];
    const DType dtype = call.outputs[k].dtype;
    results.push_back(Is16BitFloat(dtype) ? Rounded(value, dtype) : value);
  }
  return results;
}

Value ValueNumbers::ResultOf(const PointwiseProgram::Instruction& instruction, const std::vector<Value>& operands) {
  std::vector<Value> own;
  for (int operand : instruction.operands) {
    if (operand >= 0) own.push_back(operands[static_cast<size_t>(operand)]);
  }
  const PointwiseOp op = instruction.op;
  if (op == PointwiseOp::kCopy) return own[0];
  if (op == PointwiseOp::kToFloat16) return Rounded(own[0], DType::kFloat16);
  if (op == PointwiseOp::kToBfloat16) return Rounded(own[0], DType::kBfloat16);
  ValueKey key("function");
  key.Add(PointwiseOpName(op));
  for (const Value& operand : own) key.Add(operand);
  const Value result = Of(key);
  if (!IsExact(op)) return result;
  // The first operand of these only chooses what the result is.
  if (op == PointwiseOp::kWhere || op == PointwiseOp::kReluGrad) own.erase(own.begin());
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    if (std::all_of(own.begin(), own.end(), [&](const Value& operand) { return IsNarrow(operand, dtype); })) narrow_[result.number] = dtype;
  }
  return result;
}

std::vector<Value> ValueNumbers::ResultsOfTensors(const KernelCall& call, const std::vector<Value>& inputs) {
  std::vector<Value> results;
  const int groups = FusedTensorsOf(call);
  const std::span<const Value> all(inputs);
  const size_t each = inputs.size() / static_cast<size_t>(groups);
  for (int group = 0; group < groups; ++group) {
    const std::span<const Value> own = all.subspan(static_cast<size_t>(group) * each, each);
    for (const Value& result : ResultsOf(FusedOf(call, group), {own.begin(), own.end()})) results.push_back(result);
  }
  return results;
}

std::vector<Value> ValueNumbers::ResultsOfUpdates(const KernelCall& call, const std::vector<Value>& inputs) {
  std::vector<Value> results(call.outputs.size());
  for (int tensor = 0; tensor < TensorsOf(call); ++tensor) {
    std::vector<Value> own;
    for (int input : UpdateInputs(call, tensor)) own.push_back(inputs[static_cast<size_t>(input)]);
    const std::vector<Value> made = ResultsOfAny(UpdateOf(call, tensor), own);
    const std::vector<int> outputs = UpdateOutputs(call, tensor);
    for (size_t k = 0; k < made.size(); ++k) results[static_cast<size_t>(outputs[k])] = made[k];
  }
  return results;
}

}  // namespace gradloom::verify
