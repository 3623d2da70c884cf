#include "compiler/passes/fusion/keep_log_sums.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/passes/graph_match.h"
#include "compiler/passes/schedule/choose_kernels.h"
#include "runtime/base/attention_form.h"

namespace gradloom {
namespace {

using enum attention::Input;
using attention::kLogSums;
using attention::kY;

bool IsForward(const Node& node) {
  const bool own = node.domain == kGradloomDomain;
  return (node.op == "Attention" && (own || node.domain.empty())) || (node.op == "AttentionTraining" && own);
}

// The training form of a forward node, which may have no value for the log-sum-exps yet.
Node TrainingForm(Node node) {
  node.op = "AttentionTraining";
  node.domain = kGradloomDomain;
  node.outputs.resize(kLogSums + 1, kNoValue);
  return node;
}

// Whether kernels of one family serve both calls. The reference kernels do not use what is kept.
bool HaveSameKernels(const KernelCall& before, const KernelCall& after, DeviceKind device) {
  const KernelRow *const own = ChooseKernel(device, before), *const row = ChooseKernel(device, after);
  return own != nullptr && row != nullptr && FamilyOf(*own) == FamilyOf(*row) && FamilyOf(*own) != "reference.";
}

void Keep(Graph& graph, const ForwardNodes& nodes, Node& gradient, const ProgramPlan& plan) {
  Node* const forward = nodes.Of(gradient, kInputs, IsForward);
  if (forward == nullptr || forward->outputs[kY] == kNoValue || gradient.inputs[kGradY] == kNoValue) return;
  Node training = TrainingForm(*forward);
  const std::vector<ValueType> types = FindOp(training.domain, training.op)->infer(graph, training);
  KernelCall keep = CallOf(graph, training, plan), use = CallOf(graph, gradient, plan);
  for (size_t i : {kY, kLogSums}) {
    keep.outputs[i] = {types[i].dtype, types[i].shape, {}};
    use.inputs.push_back(keep.outputs[i]);
  }
  if (!HaveSameKernels(CallOf(graph, *forward, plan), keep, plan.device)) return;
  if (!HaveSameKernels(CallOf(graph, gradient, plan), use, plan.device)) return;
  ValueId& log_sums = training.outputs[kLogSums];
  const ValueType& type = types[kLogSums];
  if (log_sums == kNoValue) log_sums = graph.AddValue(training.origin + "/log_sums", type.dtype, type.shape, Role::kActivation);
  gradient.inputs.insert(gradient.inputs.end(), {training.outputs[kY], log_sums});
  *forward = std::move(training);
}

}  // namespace

void KeepLogSums(Graph& graph, DeviceKind device, int threads) {
  ProgramPlan plan;
  plan.device = device;
  plan.threads = threads;
  const ForwardNodes nodes(graph);
  for (Node& node : graph.nodes) {
    if (node.domain == kGradloomDomain && node.op == "AttentionGrad") Keep(graph, nodes, node, plan);
  }
}

}  // namespace gradloom
