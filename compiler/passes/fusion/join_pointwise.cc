#include "compiler/passes/fusion/join_pointwise.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/passes/fusion/join_nodes.h"
#include "compiler/passes/schedule/choose_kernels.h"
#include "compiler/passes/schedule/node_order.h"
#include "compiler/passes/schedule/refusals.h"
#include "kernels/catalog/pointwise.h"
#include "kernels/catalog/pointwise_tensors.h"

namespace gradloom {
namespace {

// Above this many elements, the computation takes longer than its launch.
constexpr int64_t kMaxElements = int64_t{1} << 16;

class Joiner {
 public:
  Joiner(Graph& graph, const ProgramPlan& plan) : graph_(graph), plan_(plan), uses_(graph) {
    for (const Value& value : graph.values()) {
      if (value.next_of != kNoValue) next_.emplace(value.next_of, value.id);
    }
    outputs_.insert(graph.outputs.begin(), graph.outputs.end());
  }

  void Run() {
    JoinNodes(
        graph_, [&](const Node& node) { return KindOf(node); },
        [&](const std::vector<int>& joined, int next) {
          const Node& node = graph_.nodes[static_cast<size_t>(next)];
          return joined.size() < static_cast<size_t>(MaxFusedTensors(node.inputs.size(), node.outputs.size()));
        },
        [&](const std::vector<int>& members) { return Joined(members); });
  }

 private:
  // A key that is equal for nodes that can be joined; nullopt for nodes that are not joined.
  std::optional<std::string> KindOf(const Node& node) {
    if (!node.regions.empty() || node.outputs.empty() || !IsPointwise(node)) return std::nullopt;
    for (ValueId id : node.outputs) {
      // A reader of a result would have to wait for all joined nodes.
      if (id == kNoValue || graph_.value(id).next_of == kNoValue || outputs_.contains(id) ||
          !uses_.consumers[static_cast<size_t>(id)].empty())
        return std::nullopt;
    }
    const KernelCall call = FusedCall(node);
    const int64_t elements = call.outputs[0].shape.elements();
    if (elements < 2 || elements > kMaxElements || !RejectsFusedTensors(call).empty()) return std::nullopt;
    if (!MayRunLater(node)) return std::nullopt;
    std::string kind = std::to_string(node.device) + " " + std::to_string(static_cast<int>(node.phase));
    for (const OperandType& input : call.inputs)
      kind += " " + std::string(DTypeName(input.dtype)) + (input.shape.elements() == 1 ? "1" : "");
    for (const auto& [name, value] : call.attributes) kind += " " + name + "=" + Attributes::ToString(value);
    return kind;
  }

  static bool IsPointwise(const Node& node) {
    const Op* const op = FindOp(node.domain, node.op);
    return op != nullptr && ((op->has(kPointwise) && node.domain.empty()) || (node.op == "Fused" && node.domain == kGradloomDomain));
  }

  // The node as a FusedTensors of one group. Without attributes if it has no program.
  KernelCall FusedCall(const Node& node) const {
    KernelCall call = CallOf(graph_, node, plan_);
    const auto program = PointwiseProgramOf(call);
    call.op = "FusedTensors";
    call.domain = kGradloomDomain;
    call.attributes = program ? program->ToAttributes() : Attributes();
    std::vector<int64_t> dtypes;
    for (const OperandType& output : call.outputs) dtypes.push_back(static_cast<int64_t>(output.dtype));
    call.attributes.set("dtypes", dtypes);
    call.attributes.set("tensors", int64_t{program ? 1 : 0});
    return call;
  }

  // Whether the inputs are the same when a later node reads them, and each belongs to one group: a result may be written over one.
  bool MayRunLater(const Node& node) {
    for (ValueId id : node.inputs) {
      const auto next = next_.find(id);
      if (next != next_.end() && std::find(node.outputs.begin(), node.outputs.end(), next->second) == node.outputs.end()) return false;
    }
    for (ValueId id : node.inputs) {
      if (graph_.value(id).shape.elements() != 1 && taken_.contains(id)) return false;
    }
    taken_.insert(node.inputs.begin(), node.inputs.end());
    return true;
  }

  Node Joined(const std::vector<int>& members) const {
    Node joined{.op = "FusedTensors", .domain = std::string(kGradloomDomain), .inputs = {}, .outputs = {}};
    joined.attributes = FusedCall(graph_.nodes[static_cast<size_t>(members.front())]).attributes;
    joined.attributes.set("tensors", static_cast<int64_t>(members.size()));
    for (int at : members) {
      const Node& node = graph_.nodes[static_cast<size_t>(at)];
      joined.inputs.insert(joined.inputs.end(), node.inputs.begin(), node.inputs.end());
      joined.outputs.insert(joined.outputs.end(), node.outputs.begin(), node.outputs.end());
    }
    return joined;
  }

  Graph& graph_;
  const ProgramPlan& plan_;
  const Uses uses_;
  std::map<ValueId, ValueId> next_;  // of states
  std::set<ValueId> outputs_, taken_;
};

// A step that refuses its batch keeps all state. So a next value that is computed before the last node that may refuse is copied to the
// state at the end of the step, one by one; behind that node it is computed in place. Devices that learn of a refusal by a collective copy
// anyway.
void MoveBehindRefusals(Graph& graph) {
  const std::vector<int> refusing = RefusingNodes(graph);
  if (refusing.empty() || std::any_of(graph.nodes.begin(), graph.nodes.end(), IsCollective)) return;
  const auto last = graph.nodes.begin() + refusing.back() + 1;
  std::stable_partition(graph.nodes.begin(), last,
                        [](const Node& node) { return node.op != "FusedTensors" || node.domain != kGradloomDomain; });
}

}  // namespace

void JoinPointwise(Graph& graph, const ProgramPlan& plan) {
  Joiner(graph, plan).Run();
  MoveBehindRefusals(graph);
}

}  // namespace gradloom
