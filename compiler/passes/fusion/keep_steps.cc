#include "compiler/passes/fusion/keep_steps.h"

#include <string>
#include <utility>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/ops/recurrent.h"
#include "compiler/passes/graph_match.h"
#include "compiler/passes/schedule/choose_kernels.h"

namespace gradloom {
namespace {

// Whether a node is the forward operator of this kind in any of its forms.
bool IsForward(const Node& node, const RecurrentKind& kind) {
  return (node.domain.empty() && node.op == kind.op) || (node.domain == kGradloomDomain && node.op == kind.training);
}

// The CPU's kernels compute in float32, but the kept values would be rounded to 16 bits; the CUDA kernels round their operands in both
// phases.
bool KeepsType(DType dtype, DeviceKind device) {
  return dtype == DType::kFloat32 || (device == DeviceKind::kCuda && DTypeBytes(dtype) == 2);
}

// Returns the node with at least `i` + 1 outputs, and the type of output `i`.
std::pair<Node, ValueType> WithOutput(const Graph& graph, Node node, size_t i) {
  if (node.outputs.size() <= i) node.outputs.resize(i + 1, kNoValue);
  const ValueType type = FindOp(node.domain, node.op)->infer(graph, node)[i];
  return {std::move(node), type};
}

// Returns the node's output `i`, adding a value if it is absent.
ValueId Output(Graph& graph, Node& node, size_t i) {
  auto [with_output, type] = WithOutput(graph, node, i);
  node = std::move(with_output);
  if (node.outputs[i] == kNoValue) node.outputs[i] = graph.AddValue(node.origin + "/kept", type.dtype, type.shape, Role::kActivation);
  return node.outputs[i];
}

Node TrainingForm(Node node, const RecurrentKind& kind) {
  if (kind.training.empty()) return node;
  node.op = kind.training;
  node.domain = kGradloomDomain;
  return node;
}

// Whether the device has kernels that compute the outputs `kept` of the forward node and use them in the gradient.
bool HasKernels(const Graph& graph, const Node& forward, const Node& gradient, const std::vector<size_t>& kept, const ProgramPlan& plan) {
  KernelCall use = CallOf(graph, gradient, plan), keep;
  Node node = forward;
  for (size_t i : kept) node = WithOutput(graph, std::move(node), i).first;
  keep = CallOf(graph, node, plan);
  for (size_t i : kept) {
    const ValueType type = WithOutput(graph, node, i).second;
    keep.outputs[i] = {type.dtype, type.shape, {}};
    use.inputs.push_back(keep.outputs[i]);
  }
  return HasOwnKernel(keep, plan.device) && HasOwnKernel(use, plan.device);
}

void Keep(Graph& graph, const ForwardNodes& nodes, Node& gradient, const RecurrentKind& kind, const ProgramPlan& plan) {
  Node* const forward = nodes.Of(gradient, static_cast<size_t>(kind.inputs), [&](const Node& node) { return IsForward(node, kind); });
  if (forward == nullptr || !KeepsType(graph.value(gradient.inputs[0]).dtype, plan.device)) return;
  // Output Y and, after all outputs of ONNX's operator, the kept steps.
  std::vector<size_t> kept{0};
  if (!kind.training.empty()) kept.push_back(static_cast<size_t>(kind.outputs));
  Node with = gradient;
  with.inputs.resize(static_cast<size_t>(kind.inputs + kind.outputs), kNoValue);
  const Node training = TrainingForm(*forward, kind);
  if (!HasKernels(graph, training, with, kept, plan)) return;
  *forward = training;
  for (size_t i : kept) with.inputs.push_back(Output(graph, *forward, i));
  gradient = std::move(with);
}

}  // namespace

void KeepSteps(Graph& graph, DeviceKind device, int threads) {
  ProgramPlan plan;
  plan.device = device;
  plan.threads = threads;
  const ForwardNodes nodes(graph);
  for (Node& node : graph.nodes) {
    for (const RecurrentKind* kind : kRecurrentKinds) {
      if (node.domain == kGradloomDomain && node.op == kind->gradient) Keep(graph, nodes, node, *kind, plan);
    }
  }
}

}  // namespace gradloom
