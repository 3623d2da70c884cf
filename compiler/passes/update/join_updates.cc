#include "compiler/passes/update/join_updates.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/passes/fusion/join_nodes.h"
#include "compiler/passes/schedule/choose_kernels.h"
#include "kernels/catalog/update.h"

namespace gradloom {
namespace {

bool IsAverage(const Node& node) { return node.domain == kGradloomDomain && node.op == "MovingAverage"; }

// Moves averages behind everything else, so that they do not stand between the updates whose results they read.
void MoveAveragesToEnd(Graph& graph) {
  std::stable_partition(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return !IsAverage(node); });
}

class Joiner {
 public:
  // The averages must be at the end.
  Joiner(Graph& graph, const ProgramPlan& plan, int64_t each_elements, int64_t joined_elements)
      : graph_(graph), plan_(plan), each_elements_(each_elements), joined_elements_(joined_elements), uses_(graph) {}

  void Run() {
    JoinNodes(
        graph_, [&](const Node& node) { return KindOf(node); },
        [&](const std::vector<int>& joined, int next) {
          int64_t elements = ElementsOf(graph_.nodes[static_cast<size_t>(next)]);
          for (int at : joined) elements += ElementsOf(graph_.nodes[static_cast<size_t>(at)]);
          return joined.size() < static_cast<size_t>(kMaxTensors) && elements <= joined_elements_;
        },
        [&](const std::vector<int>& members) { return Joined(members); });
  }

 private:
  // With padding.
  int64_t ElementsOf(const Node& update) const {
    const Value& parameter = graph_.value(update.inputs[kUpdateParameter]);
    return plan_.layout(parameter.id).elements(parameter.shape);
  }

  // Returns a key that is equal for updates that can be joined; nullopt for nodes that are not joined.
  std::optional<std::string> KindOf(const Node& node) const {
    const Op* const op = FindOp(node.domain, node.op);
    if (op == nullptr || !op->has(kUpdate) || node.op.starts_with("Lamb") || node.op == "MultiTensorUpdate") return std::nullopt;
    const Value& parameter = graph_.value(node.inputs[kUpdateParameter]);
    const int64_t elements = ElementsOf(node);
    if (elements == 0 || elements > each_elements_) return std::nullopt;
    // A reader of a next value would have to wait for all joined updates. Averages do so in any case.
    for (ValueId id : node.outputs) {
      if (id == kNoValue) return std::nullopt;
      const auto& readers = uses_.consumers[static_cast<size_t>(id)];
      if (!std::ranges::all_of(readers, [&](int at) { return IsAverage(graph_.nodes[static_cast<size_t>(at)]); })) return std::nullopt;
    }
    const KernelCall call = CallOf(graph_, node, plan_);
    if (!RejectsUnequalOperands(call).empty()) return std::nullopt;
    std::string kind = node.op + " " + std::string(DTypeName(parameter.dtype)) + " " + std::to_string(node.outputs.size()) + " " +
                       std::to_string(node.device) + " " + std::to_string(static_cast<int>(node.phase));
    for (int shared : {kUpdateLr, kUpdateStep, kUpdateClip, kUpdateApply})
      kind += " " + std::to_string(node.inputs[static_cast<size_t>(shared)]);
    for (const auto& [name, value] : node.attributes) kind += " " + name + "=" + Attributes::ToString(value);
    return kind;
  }

  Node Joined(const std::vector<int>& members) const {
    const Node& last = graph_.nodes[static_cast<size_t>(members.back())];
    Node joined{
        .op = "MultiTensorUpdate", .domain = std::string(kGradloomDomain), .inputs = {}, .outputs = {}, .attributes = last.attributes};
    joined.attributes.set("update", last.op);
    joined.attributes.set("tensors", static_cast<int64_t>(members.size()));
    std::vector<ValueId> copies;
    const bool copied = CopyTypeOf(last.attributes) != DType::kUndefined;
    for (int shared : {kUpdateLr, kUpdateStep, kUpdateClip, kUpdateApply})
      joined.inputs.push_back(last.inputs[static_cast<size_t>(shared)]);
    for (int at : members) {
      const Node& node = graph_.nodes[static_cast<size_t>(at)];
      joined.inputs.push_back(node.inputs[kUpdateParameter]);
      joined.inputs.push_back(node.inputs[kUpdateGradient]);
      joined.inputs.insert(joined.inputs.end(), node.inputs.begin() + kUpdateStates, node.inputs.end());
      joined.outputs.insert(joined.outputs.end(), node.outputs.begin(), node.outputs.end() - (copied ? 1 : 0));
      if (copied) copies.push_back(node.outputs.back());
    }
    joined.outputs.insert(joined.outputs.end(), copies.begin(), copies.end());
    return joined;
  }

  Graph& graph_;
  const ProgramPlan& plan_;
  const int64_t each_elements_, joined_elements_;
  const Uses uses_;
};

}  // namespace

void JoinUpdates(Graph& graph, const ProgramPlan& plan, int64_t each_elements, int64_t joined_elements) {
  MoveAveragesToEnd(graph);
  Joiner(graph, plan, each_elements, joined_elements).Run();
}

}  // namespace gradloom
