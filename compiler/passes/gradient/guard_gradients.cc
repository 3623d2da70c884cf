#include "compiler/passes/gradient/guard_gradients.h"

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <utility>

#include "compiler/graph/constants.h"
#include "compiler/passes/graph_match.h"

namespace gradloom {
namespace {

class Guard {
 public:
  explicit Guard(GraphBuilder& builder) : b_(builder), graph_(builder.graph()), match_(graph_) {}

  std::map<NodeId, NodeId> Run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (!node.domain.empty() || node.outputs[0] == kNoValue || !IsFloating(graph_.value(node.outputs[0]).dtype)) continue;
      if (node.op == "Where") {
        GuardBranches(static_cast<int>(i), node);
        GuardArctangent(node);
      }
      if (node.op == "Max" || node.op == "Clip") GuardRaisedLog(node);
      if (node.op == "Log" && IsRunningSumOfExponentials(node.inputs[0])) GuardLog(static_cast<int>(i), node);
    }
    return ReplaceNodes(graph_, emits_);
  }

 private:
  bool IsConstant(ValueId id, double number, double tolerance = 0) const {
    const auto constant = UniformConstant(graph_, id);
    return constant && std::abs(*constant - number) <= tolerance;
  }
  ValueId Number(double value, ValueId like) { return b_.Scalar(value, b_.dtype(like)); }

  // Has `emit` make the outputs of the node at this position.
  void Replace(int position, std::function<void()> emit) {
    const Node& node = graph_.nodes[static_cast<size_t>(position)];
    emits_.emplace(position, [this, emit = std::move(emit), phase = node.phase, origin = node.origin] {
      const Phase before = b_.phase();
      b_.set_phase(phase);
      b_.set_origin(origin);
      emit();
      b_.set_origin("");
      b_.set_phase(before);
    });
  }
  // Appends a node with this output.
  void Make(ValueId output, const char* op, std::vector<ValueId> inputs, const Node& like) {
    graph_.AddNode({.op = op, .inputs = std::move(inputs), .outputs = {output}, .phase = like.phase, .origin = like.origin});
  }

  // The operand of the node that must not be 0; -1 if there is none, or if it is not: a constant, a parameter, or raised to a positive
  // number.
  int Singular(const Node& node) const {
    if (!node.domain.empty()) return -1;
    const int operand = node.op == "Div" ? 1 : node.op == "Reciprocal" || node.op == "Log" ? 0 : -1;
    if (operand < 0) return -1;
    const ValueId id = match_.Plain(node.inputs[static_cast<size_t>(operand)]);
    return ConstantData(graph_, id) != nullptr || graph_.value(id).role == Role::kParam || IsRaised(id) ? -1 : operand;
  }

  bool IsRaised(ValueId id) const {
    const int at = match_.Producer(id);
    if (at < 0) return false;
    const Node& node = graph_.nodes[static_cast<size_t>(at)];
    if (!node.domain.empty() || (node.op != "Max" && node.op != "Clip") || node.inputs.size() < 2) return false;
    const auto is_positive = [&](ValueId bound) { return bound != kNoValue && UniformConstant(graph_, bound).value_or(0) > 0; };
    return is_positive(node.inputs[1]) || (node.op == "Max" && is_positive(node.inputs[0]));
  }

  void GuardBranches(int position, const Node& where) {
    std::vector<std::pair<size_t, Node>> branches;
    for (size_t i : {1, 2}) {
      const int at = match_.Producer(match_.Plain(where.inputs[i]));
      if (at >= 0 && Singular(graph_.nodes[static_cast<size_t>(at)]) >= 0) branches.emplace_back(i, graph_.nodes[static_cast<size_t>(at)]);
    }
    if (branches.empty()) return;
    Replace(position, [this, where = where, branches = std::move(branches)] {
      std::vector<ValueId> inputs = where.inputs;
      for (const auto& [i, node] : branches) {
        std::vector<ValueId> operands = node.inputs;
        ValueId& operand = operands[static_cast<size_t>(Singular(node))];
        const ValueId one = Number(1, operand);
        operand = i == 1 ? b_.Where(where.inputs[0], operand, one) : b_.Where(where.inputs[0], one, operand);
        b_.set_origin(node.origin);  // by which it is placed
        inputs[i] = b_.Op(node.op, operands);
        b_.set_origin(where.origin);
      }
      Make(where.outputs[0], "Where", std::move(inputs), where);
    });
  }

  void GuardRaisedLog(const Node& node) {
    const auto guard = [&](size_t operand, size_t bound) {
      const Node* log = match_.ProducedBy(node.inputs[operand], "Log");
      if (log == nullptr || match_.OnlyReader(log->outputs[0]) == nullptr) return;
      const auto least = UniformConstant(graph_, node.inputs[bound]);
      if (least && std::isfinite(*least)) GuardLog(match_.Producer(log->outputs[0]), *log);
    };
    if (node.inputs.size() < 2) return;
    guard(0, 1);
    if (node.op == "Max" && node.inputs.size() == 2) guard(1, 0);
  }

  bool IsRunningSumOfExponentials(ValueId id) const {
    const Node* sum = match_.ProducedBy(id, "CumSum");
    return sum != nullptr && match_.ProducedBy(sum->inputs[0], "Exp") != nullptr;
  }

  // The logarithm of the operand where that is a normal number. Below, the same without a gradient: 1/x could overflow.
  void GuardLog(int position, const Node& log) {
    if (emits_.contains(position)) return;
    Replace(position, [this, log = log] {
      const ValueId x = log.inputs[0];
      const ValueId small = b_.Op("Less", {x, Number(SmallestNormal(b_.dtype(x)), x)});
      const ValueId as_written = b_.Own("StopGradient", {b_.Op("Log", {x})});
      Make(log.outputs[0], "Where", {small, as_written, b_.Op("Log", {b_.Where(small, Number(1, x), x)})}, log);
    });
  }

  static double SmallestNormal(DType dtype) {
    if (dtype == DType::kFloat64) return std::numeric_limits<double>::min();
    return dtype == DType::kFloat16 ? 0x1p-14 : std::numeric_limits<float>::min();
  }

  // Where(x < 0, Where(y > 0, a + pi, a - pi), a), where a is the arctangent of y / x.
  void GuardArctangent(const Node& where) {
    const Node* left = match_.ProducedBy(where.inputs[0], "Less");
    const Node* turned = match_.ProducedBy(where.inputs[1], "Where");
    const Node* atan = match_.ProducedBy(where.inputs[2], "Atan");
    if (left == nullptr || turned == nullptr || atan == nullptr || !IsConstant(left->inputs[1], 0)) return;
    const Node* above = match_.ProducedBy(turned->inputs[0], "Greater");
    const Node* plus = match_.ProducedBy(turned->inputs[1], "Add");
    const Node* minus = match_.ProducedBy(turned->inputs[2], "Sub");
    const Node* slope = match_.ProducedBy(atan->inputs[0], "Div");
    if (above == nullptr || plus == nullptr || minus == nullptr || slope == nullptr || !IsConstant(above->inputs[1], 0)) return;
    const auto same = [&](ValueId a, ValueId b) { return match_.Plain(a) == match_.Plain(b); };
    const double tolerance = 0.02;  // of pi in 16 bits
    if (!same(slope->inputs[0], above->inputs[0]) || !same(slope->inputs[1], left->inputs[0])) return;
    if (!same(plus->inputs[0], where.inputs[2]) || !IsConstant(plus->inputs[1], std::numbers::pi, tolerance)) return;
    if (!same(minus->inputs[0], where.inputs[2]) || !IsConstant(minus->inputs[1], std::numbers::pi, tolerance)) return;
    const int position = match_.Producer(atan->outputs[0]);
    if (emits_.contains(position)) return;
    Replace(position, [this, atan = *atan, y = slope->inputs[0], x = slope->inputs[1], origin = slope->origin] {
      const ValueId steep = b_.Op("Greater", {b_.Op("Abs", {y}), b_.Op("Abs", {x})});
      b_.set_origin(origin);  // by which it is placed
      // At the origin the angle is 0, as is its gradient in PyTorch.
      const ValueId less = b_.Where(steep, x, y), more = b_.Where(steep, y, x);
      const ValueId both_zero = b_.Op("Equal", {more, Number(0, x)});
      const ValueId flat = b_.Div(b_.Where(both_zero, Number(0, x), less), b_.Where(both_zero, Number(1, x), more));
      b_.set_origin(atan.origin);
      const ValueId angle = b_.Op("Atan", {flat});
      // Not by the sign of the slope, since a negative zero is no negative coordinate.
      const ValueId zero = Number(0, x);
      const ValueId rises = b_.Op("Xor", {b_.Op("Less", {x, zero}), b_.Op("Greater", {y, zero})});
      const ValueId axis = b_.Where(rises, Number(std::numbers::pi / 2, x), Number(-std::numbers::pi / 2, x));
      Make(atan.outputs[0], "Where", {steep, b_.Sub(axis, angle), angle}, atan);
    });
  }

  GraphBuilder& b_;
  Graph& graph_;
  const GraphMatch match_;
  std::map<int, std::function<void()>> emits_;  // by the position of the node that they replace
};

}  // namespace

std::map<NodeId, NodeId> GuardGradients(GraphBuilder& builder) { return Guard(builder).Run(); }

}  // namespace gradloom
