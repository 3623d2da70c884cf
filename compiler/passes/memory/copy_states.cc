#include "compiler/passes/memory/copy_states.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/schedule/node_order.h"

namespace gradloom {

void CopyStates(Graph& graph) {
  const auto values = static_cast<size_t>(graph.num_values());
  std::vector<bool> changes(values);
  for (const Value& value : graph.values()) {
    if (value.next_of != kNoValue) changes[static_cast<size_t>(value.next_of)] = true;
  }
  std::vector<ValueId> shown(values);  // by value: what a chain of views shows
  std::iota(shown.begin(), shown.end(), 0);
  for (Node& node : std::exchange(graph.nodes, {})) {
    if (!IsView(node)) {
      graph.nodes.push_back(std::move(node));
      continue;
    }
    const ValueId made = node.outputs[0], source = shown[static_cast<size_t>(node.inputs[0])];
    const Value next = graph.value(made);
    if (next.next_of == kNoValue || next.next_of == source || !changes[static_cast<size_t>(source)]) {
      shown[static_cast<size_t>(made)] = source;
      graph.nodes.push_back(std::move(node));
      continue;
    }
    node.outputs[0] = graph.AddValue(next.name + "/shown", next.dtype, next.shape, Role::kActivation);
    Node copy{.op = "Copy", .domain = std::string(kGradloomDomain), .inputs = node.outputs, .outputs = {made}};
    copy.phase = node.phase;
    copy.device = node.device;
    copy.origin = node.origin;
    graph.nodes.push_back(std::move(node));
    graph.AddNode(std::move(copy));
  }
}

}  // namespace gradloom
