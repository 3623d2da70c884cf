#include "compiler/passes/choose_kernels.h"

#include <string>
#include <utility>

#include "compiler/ops/op.h"
#include "compiler/passes/node_order.h"

namespace gradloom {

namespace {

// As in a plan: see KernelCall::values.
TensorView KnownValue(const Graph& graph, ValueId id) {
  if (id == kNoValue || graph.value(id).role != Role::kConst) return {};
  const Tensor* const value = graph.data(id);
  return value == nullptr || !IsKnownConstant(value->dtype(), value->elements()) ? TensorView() : value->view();
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

void ChooseKernels(const Graph& graph, ProgramPlan& plan) {
  plan.kernels.assign(graph.nodes.size(), {});
  plan.bodies.assign(graph.nodes.size(), {});
  std::string missing, where;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const Op* op = FindOp(node.domain, node.op);
    if (!node.regions.empty()) {
      if (plan.device != DeviceKind::kCpu) {
        missing += (missing.empty() ? "'" : ", '") + Escaped(node.op) + "'";
        where += (where.empty() ? "" : "\n      ") + Describe(node) + ": what is decided during a step runs on the CPU alone";
        continue;
      }
      for (const Region& region : node.regions) {
        ProgramPlan& body = plan.bodies[i].emplace_back();
        body.device = plan.device;
        body.threads = plan.threads;
        ChooseKernels(*region.body, body);
      }
      continue;
    }
    if (IsInputCopy(node) || (op != nullptr && (op->has(kView) || op->has(kMeeting)))) continue;
    const KernelCall call = CallOf(graph, node, plan);
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
                "run 'gradloom check' on the model to see all that stands in the way");
  }
}

}  // namespace gradloom
