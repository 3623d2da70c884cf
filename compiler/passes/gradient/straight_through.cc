#include "compiler/passes/gradient/straight_through.h"

#include <string>
#include <utility>

#include "compiler/ops/op.h"
#include "compiler/passes/graph_match.h"

namespace gradloom {
namespace {

size_t At(ValueId id) { return static_cast<size_t>(id); }

// Returns, by value id, whether its gradient reaches a parameter.
std::vector<bool> ReachesParameter(const Graph& graph, const std::vector<ValueId>& parameters) {
  std::vector<bool> learned(static_cast<size_t>(graph.num_values()));
  for (ValueId id : parameters) learned[At(id)] = true;
  for (const Node& node : graph.nodes) {
    const Op* op = FindOp(node.domain, node.op);
    if (op != nullptr && op->has(kNoGradient)) continue;
    bool any = false;
    ForEachUse(node, [&](ValueId id) { any = any || learned[At(id)]; });
    for (ValueId id : node.outputs) {
      if (id != kNoValue) learned[At(id)] = any && IsFloating(graph.value(id).dtype);
    }
  }
  return learned;
}

class Finder {
 public:
  Finder(const Graph& graph, const std::vector<ValueId>& parameters)
      : graph_(graph), match_(graph), learned_(ReachesParameter(graph, parameters)) {}

  // Returns the operand of the node that gets no gradient, or -1.
  int Detached(const Node& node) const {
    if (!node.domain.empty() || node.inputs.size() != 2 || !IsFloating(graph_.value(node.outputs[0]).dtype)) return -1;
    if (node.op == "Add") {
      for (int i : {0, 1}) {
        const ValueId x = node.inputs[static_cast<size_t>(1 - i)], difference = node.inputs[static_cast<size_t>(i)];
        const Node* sub = ProducedBy(difference, "Sub", node);
        if (sub != nullptr && (Cancels(sub->inputs[1], x, sub->inputs[0]) || Scales(sub->inputs[1], x, sub->inputs[0]))) return i;
      }
    }
    if (node.op != "Sub") return -1;
    // x - (x - s).
    if (const Node* sub = ProducedBy(node.inputs[1], "Sub", node);
        sub != nullptr && Cancels(sub->inputs[0], node.inputs[0], sub->inputs[1]))
      return 1;
    // (s + x) - x.
    const Node* add = ProducedBy(node.inputs[0], "Add", node);
    for (size_t i = 0; add != nullptr && i < 2; ++i) {
      if (Cancels(add->inputs[i], node.inputs[1], add->inputs[1 - i])) return 1;
    }
    return -1;
  }

 private:
  // Returns the node that produces the operand, if it has this operator and the operand has the type of the node's result.
  const Node* ProducedBy(ValueId id, const char* op, const Node& node) const {
    return graph_.type(id) == graph_.type(node.outputs[0]) ? match_.ProducedBy(id, op) : nullptr;
  }
  bool Cancels(ValueId one, ValueId other, ValueId step) const {
    return match_.Plain(one) == match_.Plain(other) && learned_[At(one)] && match_.Producer(match_.Plain(step)) >= 0 &&
           (!learned_[At(step)] || IsScaledBack(match_.Plain(step)));
  }
  // Whether the value is a step function times learned scales plus learned offsets that have fewer elements than it: a value divided by the
  // maximum of a row, rounded and multiplied again. As written, only the scales would learn.
  bool IsScaledBack(ValueId id, int most_nodes = 8) const {
    const int producer = match_.Producer(id);
    if (producer < 0 || most_nodes == 0) return false;
    const Node& node = graph_.nodes[static_cast<size_t>(producer)];
    const Op* op = FindOp(node.domain, node.op);
    if (op != nullptr && op->has(kNoGradient) && op->has(kPointwise)) return learned_[At(node.inputs[0])];
    const bool commutes = node.op == "Mul" || node.op == "Add";
    if (!commutes && node.op != "Div" && node.op != "Sub" && node.op != "Clip") return false;
    for (size_t i = 0; i < (commutes ? 2 : 1); ++i) {
      const ValueId step = node.inputs[i], other = commutes || node.inputs.size() == 2 ? node.inputs[1 - i] : kNoValue;
      const bool few =
          other == kNoValue || !learned_[At(other)] || graph_.value(other).shape.elements() < graph_.value(id).shape.elements();
      if (few && graph_.value(step).shape == graph_.value(id).shape && IsScaledBack(match_.Plain(step), most_nodes - 1)) return true;
    }
    return false;
  }
  // Whether both are the same multiple of `whole`.
  bool Scales(ValueId one, ValueId other, ValueId whole) const {
    const auto factor = [&](ValueId multiple) {
      for (const char* op : {"Mul", "Div"}) {
        const Node* scaled = match_.ProducedBy(multiple, op);
        for (size_t i = 0; scaled != nullptr && i < (scaled->op == "Mul" ? 2 : 1); ++i) {
          const ValueId by = scaled->inputs[1 - i];
          if (match_.Plain(scaled->inputs[i]) == match_.Plain(whole) && !learned_[At(by)]) return std::pair(scaled->op, match_.Plain(by));
        }
      }
      return std::pair(std::string(), kNoValue);
    };
    return learned_[At(whole)] && factor(one).second != kNoValue && factor(one) == factor(other);
  }

  const Graph& graph_;
  const GraphMatch match_;
  const std::vector<bool> learned_;
};

}  // namespace

int64_t PassStraightThrough(GraphBuilder& builder, const std::vector<ValueId>& parameters) {
  Graph& graph = builder.graph();
  const Finder finder(graph, parameters);
  std::vector<std::pair<size_t, int>> found;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (const int operand = finder.Detached(graph.nodes[i]); operand >= 0) found.emplace_back(i, operand);
  }
  if (found.empty()) return 0;
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  auto next = found.begin();
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (next != found.end() && next->first == i) {
      builder.set_origin(nodes[i].origin);
      ValueId& operand = nodes[i].inputs[static_cast<size_t>(next++->second)];
      operand = builder.Own("StopGradient", {operand});
    }
    graph.nodes.push_back(std::move(nodes[i]));
  }
  builder.set_origin("");
  return static_cast<int64_t>(found.size());
}

}  // namespace gradloom
