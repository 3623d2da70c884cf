#include "compiler/passes/precision/keep_weight_copies.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/passes/rewrite_nodes.h"
#include "compiler/passes/schedule/node_order.h"
#include "compiler/passes/simplify.h"

namespace gradloom {
namespace {

class Keeper {
 public:
  Keeper(GraphBuilder& builder, const Plan& plan, bool trains)
      : b_(builder),
        graph_(builder.graph()),
        plan_(plan),
        trains_(trains),
        fetched_(graph_.outputs.begin(), graph_.outputs.end()),
        shown_(static_cast<size_t>(graph_.num_values()), kNoValue) {
    for (const StateTensor& state : plan.state) states_.insert(state.name);
  }

  void Run() {
    FindParameters();
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    std::map<ValueId, ValueId> replaced;
    for (Node& node : nodes) {
      ReplaceIds(replaced, node.inputs);
      if (ReplaceCast(node, replaced)) continue;
      WriteCopy(node);
      graph_.nodes.push_back(std::move(node));
    }
    RemoveDeadNodes(graph_);
  }

 private:
  // Finds the parameters, the views of them, and the copies that the plan has.
  void FindParameters() {
    for (const Value& value : graph_.values()) {
      if (value.role != Role::kParam || value.next_of != kNoValue || value.averaged) continue;
      shown_[static_cast<size_t>(value.id)] = value.id;
      parameters_.emplace(value.name, value.id);
    }
    for (const Node& node : graph_.nodes) {
      if (IsView(node)) shown_[static_cast<size_t>(node.outputs[0])] = shown_[static_cast<size_t>(node.inputs[0])];
    }
    for (const StateTensor& state : plan_.state) {
      if (state.kind != StateKind::kWeightCopy) continue;
      const auto parameter = parameters_.find(plan_.state[static_cast<size_t>(state.parameter)].name);
      if (parameter != parameters_.end()) copies_.emplace(parameter->second, AddCopy(state.name, parameter->second, state.dtype));
    }
  }

  ValueId AddCopy(const std::string& name, ValueId parameter, DType dtype) {
    const ValueId copy = graph_.AddValue(name, dtype, b_.shape(parameter), Role::kState);
    graph_.value(copy).rounded_of = parameter;
    return copy;
  }

  // The copy of the parameter in this type; kNoValue if it has none and gets none.
  ValueId CopyOf(ValueId parameter, DType dtype) {
    const auto known = copies_.find(parameter);
    if (known != copies_.end()) return b_.dtype(known->second) == dtype ? known->second : kNoValue;
    const std::string name = graph_.value(parameter).name + "/" + std::string(DTypeName(dtype)) + "_copy";
    if (!trains_ || states_.contains(graph_.value(parameter).name) || graph_.Find(name) != kNoValue || states_.contains(name))
      return kNoValue;
    return copies_.emplace(parameter, AddCopy(name, parameter, dtype)).first->second;
  }

  // Returns whether the node is a cast of a parameter whose result a copy replaces.
  bool ReplaceCast(const Node& node, std::map<ValueId, ValueId>& replaced) {
    if (node.op != "Cast" || !node.domain.empty() || static_cast<size_t>(node.inputs[0]) >= shown_.size()) return false;
    const ValueId parameter = shown_[static_cast<size_t>(node.inputs[0])], made = node.outputs[0];
    if (parameter == kNoValue || !Is16BitFloat(b_.dtype(made)) || b_.dtype(parameter) != DType::kFloat32) return false;
    // A fetched value must be made by a node, and a next value keeps its identity.
    if (fetched_.contains(made) || graph_.value(made).next_of != kNoValue) return false;
    const ValueId copy = CopyOf(parameter, b_.dtype(made));
    if (copy == kNoValue) return false;
    if (b_.shape(copy) == b_.shape(made)) {
      replaced.emplace(made, copy);
      return true;
    }
    Node view{.op = "Reshape", .inputs = {copy, b_.Ints(b_.shape(made).dims())}, .outputs = {made}};
    view.phase = node.phase;
    view.device = node.device;
    view.origin = node.origin;
    graph_.AddNode(std::move(view));
    return true;
  }

  // Lets an update write the next value of its parameter's copy.
  void WriteCopy(Node& node) {
    const Op* const op = FindOp(node.domain, node.op);
    if (op == nullptr || !op->has(kUpdate) || node.op == "LambDirection") return;
    const auto copy = copies_.find(graph_.value(node.outputs[0]).next_of);
    if (copy == copies_.end()) return;
    const DType dtype = b_.dtype(copy->second);
    node.attributes.set("copy_type", static_cast<int64_t>(dtype));
    const ValueId next = graph_.AddValue(graph_.value(copy->second).name + "/next", dtype, b_.shape(copy->second), Role::kActivation);
    graph_.value(next).next_of = copy->second;
    node.outputs.push_back(next);
  }

  GraphBuilder& b_;
  Graph& graph_;
  const Plan& plan_;
  const bool trains_;
  const std::set<ValueId> fetched_;
  std::set<std::string> states_;               // of the plan, by name
  std::vector<ValueId> shown_;                 // by value id: the parameter that a value or view shows
  std::map<std::string, ValueId> parameters_;  // by name
  std::map<ValueId, ValueId> copies_;          // by parameter
};

}  // namespace

void KeepWeightCopies(GraphBuilder& builder, const Plan& plan, bool trains) { Keeper(builder, plan, trains).Run(); }

}  // namespace gradloom
