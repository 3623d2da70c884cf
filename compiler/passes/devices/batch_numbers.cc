#include "compiler/passes/devices/batch_numbers.h"

#include <memory>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

// Whether the node's results have the types that they have in `graph`.
bool HasTypes(const Graph& graph, const Node& node, const TypeRules& rules) {
  try {
    const std::vector<ValueType> types = rules.Infer(graph, node);
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] != kNoValue && types[k] != graph.type(node.outputs[k])) return false;
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The node. For the gradient of a Slice, whose shape does not follow from the positions, that Slice.
Node ShapedForm(Graph& graph, const Node& node) {
  if (node.op != "SliceGrad" || node.domain != kGradloomDomain) return node;
  Node slice{.op = "Slice", .inputs = node.inputs, .outputs = {node.inputs[0]}};
  const DType dtype = graph.value(node.inputs[0]).dtype;
  slice.inputs[0] = graph.AddValue("sliced", dtype, Shape(node.attributes.Ints("shape")), Role::kActivation);
  return slice;
}

}  // namespace

BatchNumbers::BatchNumbers(const Graph& graph, const BatchDependence& dependence, const TypeRules& rules) {
  std::unique_ptr<Graph> changed;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    std::set<ValueId> differing;
    for (ValueId id : graph.nodes[i].inputs) {
      if (id != kNoValue && dependence.OtherNumber(id) != nullptr) differing.insert(id);
    }
    if (differing.empty()) continue;
    if (changed == nullptr) changed = graph.Clone();
    const Node node = ShapedForm(*changed, graph.nodes[i]);
    const auto keeps_types = [&](const std::set<ValueId>& ids) {
      for (ValueId id : ids) changed->set_data(id, *dependence.OtherNumber(id));
      const bool keeps = HasTypes(*changed, node, rules);
      for (ValueId id : ids) changed->set_data(id, *graph.data(id));
      return keeps;
    };
    // Only together do the ends of a range that has the same length at any batch size keep the shape.
    const bool all = keeps_types(differing);
    for (ValueId id : differing) {
      if (all || keeps_types({id})) {
        numbers_.emplace(id, *graph.data(id));
        used_as_numbers_[i].insert(id);
      } else {
        extents_.insert(id);
      }
    }
  }
}

void BatchNumbers::KeepNumbers(GraphBuilder& device, size_t at, Node& node) const {
  const auto used = used_as_numbers_.find(at);
  if (used == used_as_numbers_.end()) return;
  std::map<ValueId, ValueId> made;
  for (ValueId& id : node.inputs) {
    if (!used->second.contains(id) || !extents_.contains(id)) continue;
    const auto [known, fresh] = made.emplace(id, kNoValue);
    if (fresh) known->second = device.Constant(numbers_.at(id), device.graph().value(id).name);
    id = known->second;
  }
}

}  // namespace gradloom
