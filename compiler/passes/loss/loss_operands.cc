#include "compiler/passes/loss/loss_operands.h"

#include <algorithm>

#include "compiler/passes/memory/place_state.h"
#include "runtime/base/joined.h"
#include "runtime/base/suggestion.h"

namespace gradloom {
namespace {

bool SameButForTrailingOnes(const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  for (int i = 0; i < longer.rank(); ++i) {
    if (longer[i] != (i < shorter.rank() ? shorter[i] : 1)) return false;
  }
  return true;
}

}  // namespace

LossOperands::LossOperands(GraphBuilder& builder, const std::map<ValueId, std::string>& output_names, const OutputExtents& extents)
    : b_(builder), output_names_(output_names), extents_(extents), inputs_(FeedsOf(builder.graph())) {}

const std::map<int, ValueId>& LossOperands::Extents(ValueId output) const {
  static const std::map<int, ValueId> kNone;
  const auto found = extents_.find(output);
  return found == extents_.end() ? kNone : found->second;
}

bool LossOperands::IsOnlyExtent(ValueId output) const {
  return std::any_of(extents_.begin(), extents_.end(), [&](const auto& of) {
    return std::any_of(of.second.begin(), of.second.end(), [&](const auto& axis) { return axis.second == output; });
  });
}

ValueId LossOperands::Counts(const std::map<int, ValueId>& extents, const Shape& shape) {
  ValueId counts = kNoValue;
  for (const auto& [axis, count] : extents) {
    std::vector<int64_t> places(static_cast<size_t>(shape[axis])), dims(static_cast<size_t>(shape.rank()), 1);
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i);
    dims[static_cast<size_t>(axis)] = shape[axis];
    const ValueId below = b_.Op("Less", {b_.Reshape(b_.Ints(places), Shape(dims)), count});
    counts = counts == kNoValue ? below : b_.Op("And", {counts, below});
  }
  return counts;
}

std::string LossOperands::NameOf(ValueId output) const {
  const auto named = output_names_.find(output);
  return named != output_names_.end() ? named->second : b_.graph().value(output).name;
}

std::vector<std::string> LossOperands::OutputNames() const {
  std::vector<std::string> names;
  for (ValueId id : b_.graph().outputs) {
    if (!IsOnlyExtent(id)) names.push_back(NameOf(id));
  }
  return names;
}

ValueId LossOperands::FindOutput(const std::string& name) const {
  for (ValueId id : b_.graph().outputs) {
    if (NameOf(id) == name) return id;
  }
  return kNoValue;
}

ValueId LossOperands::FindInput(const std::string& name) const {
  for (ValueId id : inputs_) {
    if (b_.graph().value(id).name == name) return id;
  }
  return kNoValue;
}

ValueId LossOperands::FindTarget(const std::string& name) const {
  const auto found = targets_.find(name);
  return found == targets_.end() ? kNoValue : found->second;
}

ValueId LossOperands::Output(const std::string& name, const std::string& where) const {
  const Graph& graph = b_.graph();
  if (name.empty() && !graph.outputs.empty()) return graph.outputs.front();
  if (const ValueId id = FindOutput(name); id != kNoValue) return id;
  const auto& inside = graph.values();
  const auto is_named = [&](const Value& value) { return value.name == name && value.role == Role::kActivation; };
  const std::string help = std::any_of(inside.begin(), inside.end(), is_named)
                               ? "it is a value inside the model: name it as an output, too, with --outputs '" + Escaped(name) + "'"
                               : Suggestion(name, OutputNames(), "its outputs are: " + JoinedNames(OutputNames()));
  throw Error(ErrorCode::kConfig, "the model has no output '" + Escaped(name) + "'", where, help);
}

void LossOperands::CheckIsNoOutput(const std::string& name, const ValueType& type, const std::string& where) const {
  const ValueId output = FindOutput(name);
  if (output == kNoValue || named_targets_.contains(name) || FindInput(name) != kNoValue) return;
  const ValueType is = b_.graph().type(output);
  if (!IsFloating(is.dtype) || is.dtype != type.dtype || !SameButForTrailingOnes(is.shape, type.shape)) return;
  throw Error(ErrorCode::kConfig, "the target '" + Escaped(name) + "' is also the name of an output that could be compared", where,
              "a loss compares an output with data: give the target another name, and its data by --map NAME=" + Escaped(name) +
                  "; for two outputs, such as a student's and a teacher's, write the loss as an ONNX file with an input for each: --loss "
                  "'FILE.onnx(a=OUTPUT, b=" +
                  Escaped(name) + ")', and --freeze the weights that no gradient shall reach");
}

ValueId LossOperands::Target(const std::string& name, const ValueType& type, const std::string& where, const std::string& wanted_by) {
  Graph& graph = b_.graph();
  CheckIsNoOutput(name, type, where);
  if (name.starts_with("step_params/")) {
    throw Error(ErrorCode::kConfig, "the target name '" + Escaped(name) + "' is reserved for values that are set before each step", where,
                "give the target another name");
  }
  ValueId id = FindTarget(name);
  if (id == kNoValue) id = FindInput(name);
  if (id == kNoValue) {
    id = graph.AddValue(name, type.dtype, type.shape, Role::kInput);
    graph.inputs.push_back(id);
    if (graph.value(id).name != name) feed_names_.emplace(id, name);
  }
  targets_.emplace(name, id);
  const ValueType have = graph.type(id);
  const std::string what = FindInput(name) == kNoValue ? "target" : "target and model input";
  if (have.dtype != type.dtype) {
    throw Error(ErrorCode::kType, what + " '" + Escaped(name) + "' is " + have.ToString() + ", but this loss expects " + type.ToString(),
                where, "it is " + wanted_by + ": give this loss its own target");
  }
  if (!SameButForTrailingOnes(have.shape, type.shape)) {
    throw Error(ErrorCode::kShape,
                what + " '" + Escaped(name) + "' is " + have.shape.ToString() + ", but this loss expects " + type.shape.ToString(), where,
                "it is " + wanted_by + ": give this loss its own target, or reshape the output in the model");
  }
  return b_.Reshape(id, type.shape);
}

}  // namespace gradloom
