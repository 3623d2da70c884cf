#include "compiler/passes/gradient/expand_derivatives.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "compiler/passes/gradient/differentiate.h"
#include "compiler/passes/rewrite_nodes.h"

namespace gradloom {
namespace {

class Expansion {
 public:
  explicit Expansion(GraphBuilder& builder) : b_(builder), graph_(builder.graph()) {}

  void Run() {
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (Node& node : nodes) {
      if (node.op == "Derivative" && node.domain == kGradloomDomain) {
        Expand(node);
      } else {
        graph_.nodes.push_back(std::move(node));
      }
    }
  }

 private:
  void Expand(const Node& node) {
    b_.set_origin(node.origin);
    b_.set_phase(Phase::kBackward);
    const size_t operands = (node.inputs.size() - 1) / 2, wanted = static_cast<size_t>(node.attributes.Int("wanted", 0));
    // The copy depends on no other value that is differentiated by.
    std::map<ValueId, ValueId> moved;
    std::vector<ValueId> leaves;
    for (size_t i = 0; i < operands; ++i) {
      const ValueId leaf = b_.Own("Copy", {node.inputs[1 + operands + i]});
      moved.emplace(node.inputs[1 + i], leaf);
      if (i < wanted) leaves.push_back(leaf);
    }
    const ValueId y = CopyPath(node.inputs[0], moved);
    const ValueId sum = b_.shape(y).rank() == 0 ? y : b_.Reshape(b_.ReduceSum(y, {}, false), {});
    const std::map<ValueId, ValueId> gradients = Differentiate(b_, sum, leaves);
    b_.set_origin(node.origin);
    b_.set_phase(Phase::kBackward);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      const auto found = gradients.find(leaves[i]);
      b_.Op("Identity", {found != gradients.end() ? found->second : b_.Zeros(graph_.type(leaves[i]))});
      // Keeps the value id that the rest of the graph reads.
      graph_.nodes.back().outputs[0] = node.outputs[i];
    }
    b_.set_phase(Phase::kForward);
    b_.set_origin("");
  }

  // Copies the nodes between the moved values and `y`, reading the moved values; returns the copy of y.
  ValueId CopyPath(ValueId y, std::map<ValueId, ValueId>& moved) {
    std::vector<bool> reaches(static_cast<size_t>(graph_.num_values()));
    reaches[static_cast<size_t>(y)] = true;
    const size_t count = graph_.nodes.size();
    for (size_t i = count; i-- > 0;) {
      const Node& node = graph_.nodes[i];
      const bool leads = std::any_of(node.outputs.begin(), node.outputs.end(),
                                     [&](ValueId id) { return id != kNoValue && reaches[static_cast<size_t>(id)] && !moved.contains(id); });
      if (!leads) continue;
      ForEachUse(node, [&](ValueId id) { reaches[static_cast<size_t>(id)] = true; });
    }
    for (size_t i = 0; i < count; ++i) {
      Node copy = graph_.nodes[i];
      // Passes change bodies in place, so the copy needs its own.
      for (Region& region : copy.regions) region.body = region.body->Clone();
      const bool depends = std::any_of(copy.inputs.begin(), copy.inputs.end(), [&](ValueId id) { return moved.contains(id); });
      const bool leads = std::any_of(copy.outputs.begin(), copy.outputs.end(), [&](ValueId id) {
        return id != kNoValue && static_cast<size_t>(id) < reaches.size() && reaches[static_cast<size_t>(id)] && !moved.contains(id);
      });
      if (!depends || !leads) continue;
      ReplaceIds(moved, copy.inputs);
      for (ValueId& id : copy.outputs) {
        if (id == kNoValue) continue;
        const Value value = graph_.value(id);
        const ValueId made = graph_.AddValue(value.name, value.dtype, value.shape, value.role);
        moved.emplace(id, made);
        id = moved.at(id);
      }
      graph_.AddNode(std::move(copy));
    }
    const auto found = moved.find(y);
    return found == moved.end() ? y : found->second;
  }

  GraphBuilder& b_;
  Graph& graph_;
};

}  // namespace

void ExpandDerivatives(GraphBuilder& builder) { Expansion(builder).Run(); }

}  // namespace gradloom
