#include "compiler/passes/schedule/choose_kernels.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "compiler/ops/op.h"
#include "compiler/passes/schedule/node_order.h"

namespace gradloom {

namespace {

// The value as a plan has it: see KernelCall::values.
TensorView KnownValue(const Graph& graph, ValueId id) {
  if (id == kNoValue || graph.value(id).role != Role::kConst) return {};
  const Tensor* const value = graph.data(id);
  return value == nullptr || !IsKnownConstant(value->dtype(), value->elements()) ? TensorView() : value->view();
}

// Inputs of a body that are constants of the enclosing graph.
using KnownInputs = std::map<ValueId, TensorView>;

// Returns the known inputs of a body of the node. `known` are those of the graph that contains the node. Loop-carried values are never
// known.
KnownInputs KnownInputsOf(const Graph& graph, const KnownInputs& known, const Node& node, const Graph& body) {
  KnownInputs inputs;
  for (size_t i = static_cast<size_t>(node.attributes.Int("carried", 0)); i < body.inputs.size(); ++i) {
    const ValueId operand = node.inputs[i + 1];
    const auto outer = known.find(operand);
    const TensorView value = outer != known.end() ? outer->second : KnownValue(graph, operand);
    if (value.data != nullptr) inputs.emplace(body.inputs[i], value);
  }
  return inputs;
}

}  // namespace

KernelCall CallOf(const Graph& graph, const Node& node, const ProgramPlan& plan) {
  KernelCall call{
      .op = node.op, .domain = node.domain, .attributes = node.attributes, .inputs = {}, .outputs = {}, .threads = plan.threads};
  const auto operand = [&](ValueId id) {
    return id == kNoValue ? OperandType{} : OperandType{graph.value(id).dtype, graph.value(id).shape, plan.layout(id)};
  };
  for (ValueId id : node.inputs) call.inputs.push_back(operand(id));
  if (plan.device == DeviceKind::kCuda) {
    for (ValueId id : node.inputs) call.values.push_back(KnownValue(graph, id));
  }
  for (ValueId id : node.outputs) call.outputs.push_back(operand(id));
  return call;
}

bool HasOwnKernel(const KernelCall& call, DeviceKind device) {
  const KernelRow* const row = ChooseKernel(device, call);
  return row != nullptr && !row->name.starts_with("reference.");
}

bool HasOwnKernel(const Graph& graph, const Node& node, const std::vector<ValueType>& outputs, DeviceKind device) {
  KernelCall call{.op = node.op, .domain = node.domain, .attributes = node.attributes, .inputs = {}, .outputs = {}};
  const auto operand = [](const ValueType& type) { return OperandType{type.dtype, type.shape, {}}; };
  for (ValueId id : node.inputs) call.inputs.push_back(id == kNoValue ? OperandType() : operand(graph.type(id)));
  for (size_t k = 0; k < outputs.size(); ++k) {
    const bool made = k < node.outputs.size() && node.outputs[k] != kNoValue;
    call.outputs.push_back(made ? operand(outputs[k]) : OperandType());
  }
  return HasOwnKernel(call, device);
}

std::string_view FamilyOf(const KernelRow& row) {
  std::string_view name = row.name;
  name.remove_suffix(row.op.size());
  constexpr std::string_view kOwn = "gradloom.";
  if (name.ends_with(kOwn)) name.remove_suffix(kOwn.size());
  return name;
}

namespace {

void ChooseKernelsOf(const Graph& graph, const KnownInputs& known, ProgramPlan& plan) {
  plan.kernels.assign(graph.nodes.size(), {});
  plan.bodies.assign(graph.nodes.size(), {});
  std::string missing, where;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const Op* op = FindOp(node.domain, node.op);
    if (!node.regions.empty()) {
      for (const Region& region : node.regions) {
        ProgramPlan& body = plan.bodies[i].emplace_back();
        body.device = plan.device;
        body.threads = plan.threads;
        ChooseKernelsOf(*region.body, KnownInputsOf(graph, known, node, *region.body), body);
      }
      continue;
    }
    if (IsInputCopy(node) || KeepsElements(node) || (op != nullptr && op->has(kCollective))) continue;
    KernelCall call = CallOf(graph, node, plan);
    for (size_t k = 0; k < call.values.size(); ++k) {
      if (const auto found = known.find(node.inputs[k]); found != known.end()) call.values[k] = found->second;
    }
    std::string why;
    const KernelRow* row = ChooseKernel(plan.device, call, &why);
    if (row == nullptr) {
      missing += (missing.empty() ? "'" : ", '") + Escaped(node.op) + "'";
      where += (where.empty() ? "" : "\n      ") + Describe(node) + (why.empty() ? "" : ": " + why);
      continue;
    }
    plan.kernels[i] = {row, row->scratch_bytes == nullptr ? 0 : row->scratch_bytes(call)};
  }
  if (!missing.empty()) {
    throw Error(ErrorCode::kUnsupported, "no " + std::string(DeviceKindName(plan.device)) + " kernel for operator " + missing, where,
                "run 'gradloom check' on the model to list everything that prevents training");
  }
}

}  // namespace

void ChooseKernels(const Graph& graph, ProgramPlan& plan) { ChooseKernelsOf(graph, {}, plan); }

}  // namespace gradloom
