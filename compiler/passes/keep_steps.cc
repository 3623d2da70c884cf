#include "compiler/passes/keep_steps.h"

#include <algorithm>
#include <string>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/ops/recurrent.h"
#include "compiler/passes/choose_kernels.h"

namespace gradloom {
namespace {

// The operands of ONNX's operator that a node has, absent ones to the last.
std::vector<ValueId> OperandsOf(const Node& node, const RecurrentKind& kind) {
  std::vector<ValueId> inputs(node.inputs.begin(), node.inputs.begin() + std::min<std::ptrdiff_t>(kind.inputs, std::ssize(node.inputs)));
  inputs.resize(static_cast<size_t>(kind.inputs), kNoValue);
  return inputs;
}

// Whether a gradient's attributes are the forward node's, but for the one that only gradients have.
bool SameAttributes(const Attributes& forward, Attributes gradient) {
  gradient.erase("wanted");
  return std::equal(forward.begin(), forward.end(), gradient.begin(), gradient.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && Attributes::ToString(a.second) == Attributes::ToString(b.second);
  });
}

// The forward node of a gradient, in whichever form; null where it is gone.
Node* ForwardOf(Graph& graph, const Node& gradient, const RecurrentKind& kind) {
  for (Node& node : graph.nodes) {
    const bool is_kind = (node.domain.empty() && node.op == kind.op) || (node.domain == kGradloomDomain && node.op == kind.training);
    if (is_kind && node.phase == Phase::kForward && OperandsOf(node, kind) == OperandsOf(gradient, kind) &&
        SameAttributes(node.attributes, gradient.attributes)) {
      return &node;
    }
  }
  return nullptr;
}

bool HasOwnKernel(const Graph& graph, const Node& node, const ProgramPlan& plan) {
  const KernelRow* row = ChooseKernel(plan.device, CallOf(graph, node, plan));
  return row != nullptr && !row->name.starts_with("reference.");
}

// Makes the node's output `i` a value, if it is none.
ValueId Output(Graph& graph, Node& node, size_t i) {
  if (node.outputs.size() <= i) node.outputs.resize(i + 1, kNoValue);
  if (node.outputs[i] == kNoValue) {
    const ValueType type = FindOp(node.domain, node.op)->infer(graph, node)[i];
    node.outputs[i] = graph.AddValue(node.origin + "/kept", type.dtype, type.shape, Role::kActivation);
  }
  return node.outputs[i];
}

void Keep(Graph& graph, Node& gradient, const RecurrentKind& kind, const ProgramPlan& plan) {
  Node* const forward = ForwardOf(graph, gradient, kind);
  if (forward == nullptr || graph.value(gradient.inputs[0]).dtype != DType::kFloat32 || !HasOwnKernel(graph, gradient, plan)) return;
  const auto saved = static_cast<size_t>(kind.inputs + kind.outputs);
  gradient.inputs.resize(saved, kNoValue);
  gradient.inputs.push_back(Output(graph, *forward, 0));
  if (kind.training.empty()) return;
  forward->op = kind.training;
  forward->domain = kGradloomDomain;
  gradient.inputs.push_back(Output(graph, *forward, static_cast<size_t>(kind.outputs)));
}

}  // namespace

void KeepSteps(Graph& graph, DeviceKind device, int threads) {
  // Their kernels look at nothing that is kept.
  if (device != DeviceKind::kCpu) return;
  ProgramPlan plan;
  plan.device = device;
  plan.threads = threads;
  for (Node& node : graph.nodes) {
    for (const RecurrentKind* kind : kRecurrentKinds) {
      if (node.domain == kGradloomDomain && node.op == kind->gradient) Keep(graph, node, *kind, plan);
    }
  }
}

}  // namespace gradloom
