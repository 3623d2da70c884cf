#include "compiler/passes/patterns/fuse_softplus.h"

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "compiler/graph/constants.h"
#include "compiler/passes/graph_match.h"

namespace gradloom {
namespace {

class Fuser {
 public:
  explicit Fuser(GraphBuilder& builder) : b_(builder), graph_(builder.graph()), match_(graph_) {}

  void Run() {
    std::map<int, std::function<void()>> emits;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op != "Log" || !node.domain.empty()) continue;
      if (std::function<void()> emit = MatchLog(node)) emits.emplace(static_cast<int>(i), std::move(emit));
    }
    if (!emits.empty()) ReplaceNodes(graph_, emits);
  }

 private:
  bool IsOne(ValueId id) const { return UniformConstant(graph_, id) == 1.0; }

  // Replaces `log`, whose result is softplus(x), or with a sign in front of either. x is the operand of `inner`, a sigmoid or an
  // exponential.
  std::function<void()> Emit(const Node& log, const Node& inner, bool negated_operand, bool negated_result) const {
    const ValueId x = inner.inputs[0], result = log.outputs[0];
    // A constant of a larger shape makes the result larger than x.
    if (graph_.type(x) != graph_.type(result)) return {};
    return [this, x, result, negated_operand, negated_result, phase = log.phase, origin = log.origin, inner_origin = inner.origin] {
      b_.set_phase(phase);
      // The node that replaces the inner one is placed where that one would have been.
      b_.set_origin(inner_origin);
      const ValueId operand = negated_operand ? b_.Neg(x) : x;
      if (negated_result) {
        const ValueId softplus = b_.Op("Softplus", {operand});
        graph_.AddNode({.op = "Neg", .inputs = {softplus}, .outputs = {result}, .phase = phase, .origin = origin});
      } else {
        graph_.AddNode({.op = "Softplus", .inputs = {operand}, .outputs = {result}, .phase = phase, .origin = origin});
      }
      b_.set_origin("");
      b_.set_phase(Phase::kForward);
    };
  }

  // max(x, y) + softplus(-|x - y|). Infinities that are equal have no difference.
  std::function<void()> EmitLogAddExp(const Node& log, ValueId x, ValueId y) const {
    return [this, x, y, result = log.outputs[0], phase = log.phase, origin = log.origin] {
      b_.set_phase(phase);
      b_.set_origin(origin);
      const ValueId zero = b_.Scalar(0, b_.dtype(x));
      const ValueId difference = b_.Where(b_.Op("Equal", {x, y}), zero, b_.Sub(x, y));
      const ValueId rest = b_.Op("Softplus", {b_.Neg(b_.Op("Abs", {difference}))});
      graph_.AddNode({.op = "Add", .inputs = {b_.Op("Max", {x, y}), rest}, .outputs = {result}, .phase = phase, .origin = origin});
      b_.set_origin("");
      b_.set_phase(Phase::kForward);
    };
  }

  std::function<void()> MatchLog(const Node& log) const {
    const ValueId of = log.inputs[0];
    if (const Node* sigmoid = match_.ProducedBy(of, "Sigmoid")) return Emit(log, *sigmoid, true, true);
    if (const Node* rest = match_.ProducedBy(of, "Sub"); rest != nullptr && IsOne(rest->inputs[0])) {
      const Node* sigmoid = match_.ProducedBy(rest->inputs[1], "Sigmoid");
      return sigmoid == nullptr ? nullptr : Emit(log, *sigmoid, false, true);
    }
    const Node* sum = match_.ProducedBy(of, "Add");
    if (sum == nullptr) return {};
    const Node* exponentials[] = {match_.ProducedBy(sum->inputs[0], "Exp"), match_.ProducedBy(sum->inputs[1], "Exp")};
    if (exponentials[0] != nullptr && exponentials[1] != nullptr) {
      return EmitLogAddExp(log, exponentials[0]->inputs[0], exponentials[1]->inputs[0]);
    }
    for (size_t one : {0, 1}) {
      if (!IsOne(sum->inputs[one])) continue;
      if (exponentials[1 - one] != nullptr) return Emit(log, *exponentials[1 - one], false, false);
      // log1p(-sigmoid(x)).
      const Node* negative = match_.ProducedBy(sum->inputs[1 - one], "Neg");
      const Node* sigmoid = negative == nullptr ? nullptr : match_.ProducedBy(negative->inputs[0], "Sigmoid");
      if (sigmoid != nullptr) return Emit(log, *sigmoid, false, true);
    }
    return {};
  }

  GraphBuilder& b_;
  Graph& graph_;
  const GraphMatch match_;
};

}  // namespace

void FuseSoftplus(GraphBuilder& builder) { Fuser(builder).Run(); }

}  // namespace gradloom
