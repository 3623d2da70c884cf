#include "compiler/passes/precision/narrow_gradients.h"

#include <algorithm>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/passes/simplify.h"
#include "runtime/base/update_form.h"

namespace gradloom {
namespace {

// Whether the operator updates one parameter, with the operands of runtime/base/update_form.h.
bool IsUpdate(const Node& node) {
  const Op* const op = FindOp(node.domain, node.op);
  return op != nullptr && op->has(kUpdate) && node.op != "LambApply" && node.op != "MultiTensorUpdate";
}

}  // namespace

void NarrowGradients(Graph& graph) {
  const Uses uses(graph);
  bool any = false;
  for (Node& node : graph.nodes) {
    if (!IsUpdate(node) || graph.value(node.inputs[kUpdateParameter]).dtype != DType::kFloat32) continue;
    ValueId& gradient = node.inputs[kUpdateGradient];
    const Node* const producer = uses.ProducingNode(graph, gradient);
    if (producer == nullptr) continue;
    const Node& cast = *producer;
    if (!cast.domain.empty() || cast.op != "Cast" || !Is16BitFloat(graph.value(cast.inputs[0]).dtype)) continue;
    const bool fetched = std::find(graph.outputs.begin(), graph.outputs.end(), gradient) != graph.outputs.end();
    const std::vector<int>& consumers = uses.consumers[static_cast<size_t>(gradient)];
    if (fetched || !std::all_of(consumers.begin(), consumers.end(), [&](int i) { return IsUpdate(graph.nodes[static_cast<size_t>(i)]); }))
      continue;
    gradient = cast.inputs[0];
    any = true;
  }
  if (any) RemoveDeadNodes(graph);
}

}  // namespace gradloom
