#include "tests/ops/op_case.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/base/philox.h"

namespace gradloom {
namespace {

// Uniform random numbers from a counter, the same on every machine.
class Random {
 public:
  explicit Random(const std::string& name) {
    uint64_t hash = 1469598103934665603u;
    for (unsigned char c : name) hash = (hash ^ c) * 1099511628211u;
    key_ = NodeKey(hash, 0, 0);
  }
  double Uniform() {
    const uint64_t high = ElementBits(next_++, key_), low = ElementBits(next_++, key_);
    return static_cast<double>(((high << 32) | low) >> 11) * 0x1p-53;
  }
  int64_t Below(int64_t n) { return std::min<int64_t>(static_cast<int64_t>(Uniform() * static_cast<double>(n)), n - 1); }

 private:
  PhiloxKey key_;
  uint64_t next_ = 0;
};

Tensor Drawn(const OpOperand& operand, Random& random) {
  const int64_t n = operand.shape.elements();
  std::vector<double> values(static_cast<size_t>(n));
  if (operand.values == OpOperand::Values::kDistinct) {
    const double step = n > 1 ? (operand.high - operand.low) / static_cast<double>(n - 1) : 0.0;
    for (size_t i = 0; i < values.size(); ++i) values[i] = operand.low + step * static_cast<double>(i);
    for (int64_t i = n - 1; i > 0; --i) std::swap(values[static_cast<size_t>(i)], values[static_cast<size_t>(random.Below(i + 1))]);
  } else {
    for (double& value : values) {
      if (operand.dtype == DType::kBool)
        value = static_cast<double>(random.Below(2));
      else if (IsInteger(operand.dtype))
        value = operand.low + static_cast<double>(random.Below(static_cast<int64_t>(operand.high - operand.low)));
      else
        value = operand.low + (operand.high - operand.low) * random.Uniform();
    }
  }
  return Converted(Tensor::From(values, operand.shape).view(), operand.dtype);
}

OpOperand Known(Tensor data, OpOperand::Values values) {
  OpOperand operand;
  operand.values = values;
  operand.dtype = data.dtype();
  operand.shape = data.shape();
  operand.data = std::move(data);
  return operand;
}

Attributes WithFloating(Attributes attributes, DType floating) {
  const Attributes original = attributes;
  for (const auto& [name, value] : original) {
    const bool names_dtype = name == "to" || name == "dtype";
    if (names_dtype && original.Int(name, 0) == static_cast<int64_t>(DType::kFloat32)) attributes.set(name, static_cast<int64_t>(floating));
    const Tensor* tensor = std::get_if<Tensor>(&value);
    if (tensor != nullptr && tensor->dtype() == DType::kFloat32) attributes.set(name, Converted(tensor->view(), floating));
  }
  return attributes;
}

}  // namespace

OpOperand In(Shape shape, double low, double high) {
  OpOperand operand;
  operand.shape = std::move(shape);
  operand.low = low;
  operand.high = high;
  return operand;
}

OpOperand Distinct(Shape shape, double low, double high) {
  OpOperand operand = In(std::move(shape), low, high);
  operand.values = OpOperand::Values::kDistinct;
  return operand;
}

OpOperand Bools(Shape shape) {
  OpOperand operand = In(std::move(shape));
  operand.dtype = DType::kBool;
  return operand;
}

OpOperand Indices(Shape shape, int64_t low, int64_t past) {
  OpOperand operand = In(std::move(shape), static_cast<double>(low), static_cast<double>(past));
  operand.dtype = DType::kInt64;
  return operand;
}

OpOperand Ints(std::vector<int64_t> values) {
  const int64_t n = static_cast<int64_t>(values.size());
  return Known(Tensor::From(values, Shape{n}), OpOperand::Values::kFixed);
}

OpOperand Int(int64_t value) { return Known(Tensor::Scalar(value), OpOperand::Values::kFixed); }

OpOperand Fixed(std::vector<double> values, Shape shape) {
  return Known(Converted(Tensor::From(values, std::move(shape)).view(), DType::kFloat32), OpOperand::Values::kFixed);
}

OpOperand Fed(std::vector<double> values, Shape shape) {
  return Known(Converted(Tensor::From(values, std::move(shape)).view(), DType::kFloat32), OpOperand::Values::kFed);
}

OpOperand Fed(Tensor data) { return Known(std::move(data), OpOperand::Values::kFed); }

OpOperand Absent() {
  OpOperand operand;
  operand.values = OpOperand::Values::kAbsent;
  return operand;
}

std::string OpCase::Name() const {
  std::string name = domain.empty() ? op : domain + "." + op;
  if (!note.empty()) name += " #" + note;
  for (const OpOperand& operand : operands) {
    name += operand.values == OpOperand::Values::kAbsent ? " -" : " " + std::string(DTypeName(operand.dtype)) + operand.shape.ToString();
  }
  for (const auto& [key, value] : attributes) name += " " + key + "=" + Attributes::ToString(value);
  return name;
}

OpProgram BuildOpCase(const OpCase& op_case, const TypeRules& rules, DType floating) {
  OpProgram program;
  program.graph = std::make_unique<Graph>();
  program.graph->name = op_case.op;
  Random random(op_case.Name());
  std::vector<ValueId> operands;
  for (const OpOperand& operand : op_case.operands) {
    if (operand.values == OpOperand::Values::kAbsent) {
      operands.push_back(kNoValue);
      continue;
    }
    Tensor data = operand.data.defined() ? operand.data : Drawn(operand, random);
    if (data.dtype() == DType::kFloat32) data = Converted(data.view(), floating);
    if (operand.values == OpOperand::Values::kFixed) {
      operands.push_back(program.graph->AddData("constant", std::move(data), Role::kConst));
      continue;
    }
    const ValueId id = program.graph->AddValue("input", data.dtype(), data.shape(), Role::kInput);
    program.graph->inputs.push_back(id);
    operands.push_back(id);
    if (data.dtype() == floating) program.wanted.push_back(id);
    program.feeds.emplace(id, std::move(data));
  }
  GraphBuilder b(*program.graph, rules);
  program.outputs = b.Ops(op_case.op, op_case.domain, operands, op_case.outputs, WithFloating(op_case.attributes, floating));
  program.graph->outputs = program.outputs;
  return program;
}

ValueId AddLoss(OpProgram& program, const TypeRules& rules) {
  GraphBuilder b(*program.graph, rules);
  Random random("loss of " + program.graph->name);
  ValueId loss = kNoValue;
  for (ValueId output : program.outputs) {
    if (!IsFloating(b.dtype(output))) continue;
    OpOperand weights = In(b.shape(output), 0.5, 1.5);
    const ValueId weight = b.Constant(Converted(Drawn(weights, random).view(), b.dtype(output)), "loss_weight");
    const ValueId term = b.ReduceSum(b.Mul(output, weight), {}, /*keepdims=*/false);
    loss = loss == kNoValue ? term : b.Add(loss, term);
  }
  return loss;
}

}  // namespace gradloom
