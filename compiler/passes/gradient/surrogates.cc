#include "compiler/passes/gradient/surrogates.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "compiler/graph/constants.h"
#include "compiler/ops/op.h"
#include "compiler/passes/graph_match.h"
#include "compiler/passes/region_bodies.h"
#include "runtime/base/name_pattern.h"

namespace gradloom {
namespace {

size_t At(ValueId id) { return static_cast<size_t>(id); }

struct Step {
  ValueId above = kNoValue, below = kNoValue;  // the step is at above = below; kNoValue: at zero
  double height = 1;                           // by how much the result grows where `above` is larger
  bool compares = true;                        // otherwise the operator is a step of `above` itself: Sign, Round, Floor, Ceil
};

class StepFinder {
 public:
  // `dependent`: in a body, what the inputs are is not known.
  StepFinder(const Graph& graph, bool is_body) : graph_(graph), match_(graph), learned_(LearnedIn(graph, is_body)) {}

  std::optional<Step> Find(const Node& node) const {
    if (!node.domain.empty() || node.outputs.size() != 1 || !IsFloating(graph_.value(node.outputs[0]).dtype)) return std::nullopt;
    std::optional<Step> step;
    if (node.op == "Cast") step = Compared(node.inputs[0]);
    if (node.op == "Where") {
      const std::optional<double> yes = UniformConstant(graph_, node.inputs[1]), no = UniformConstant(graph_, node.inputs[2]);
      // Not between a number and the infinity of a mask.
      if (yes && no && *yes != *no && std::isfinite(*yes - *no)) step = Compared(node.inputs[0]);
      if (step) step->height = *yes - *no;
    }
    const Op* op = FindOp(node.domain, node.op);
    if (op != nullptr && op->has(kSteps)) step = Step{.above = node.inputs[0], .compares = false};
    const bool learned = step && (learned_[At(step->above)] || (step->below != kNoValue && learned_[At(step->below)]));
    return learned ? step : std::nullopt;
  }

 private:
  // Whether values depend differentiably on a tensor of the file. Single numbers are mostly numbers in the code.
  static std::vector<bool> LearnedIn(const Graph& graph, bool is_body) {
    std::vector<bool> learned(static_cast<size_t>(graph.num_values()));
    for (const Value& value : graph.values()) {
      const bool weight = value.role == Role::kParam || (value.role == Role::kConst && !value.derived && value.shape.elements() > 1);
      learned[At(value.id)] = IsFloating(value.dtype) && (weight || (is_body && value.role == Role::kInput));
    }
    for (const Node& node : graph.nodes) {
      if (node.op == "StopGradient") continue;
      bool any = false;
      ForEachUse(node, [&](ValueId id) { any = any || learned[At(id)]; });
      // Through comparisons, too: these may be steps that get a gradient.
      for (ValueId id : node.outputs) {
        if (id != kNoValue) learned[At(id)] = any;
      }
    }
    return learned;
  }

  // The comparison of floating-point values that makes this bool.
  std::optional<Step> Compared(ValueId id) const {
    int producer = match_.Producer(id);
    // (x > 0).int().float()
    while (producer >= 0 && graph_.nodes[static_cast<size_t>(producer)].op == "Cast") {
      producer = match_.Producer(graph_.nodes[static_cast<size_t>(producer)].inputs[0]);
    }
    if (producer < 0) return std::nullopt;
    const Node& node = graph_.nodes[static_cast<size_t>(producer)];
    const bool greater = node.op == "Greater" || node.op == "GreaterOrEqual", less = node.op == "Less" || node.op == "LessOrEqual";
    if (!node.domain.empty() || !(greater || less) || !IsFloating(graph_.value(node.inputs[0]).dtype)) return std::nullopt;
    Step step{.above = node.inputs[greater ? 0 : 1], .below = node.inputs[greater ? 1 : 0]};
    if (UniformConstant(graph_, step.below) == 0.0) step.below = kNoValue;
    return step;
  }

  const Graph& graph_;
  const GraphMatch match_;
  const std::vector<bool> learned_;
};

// A function whose derivative is the surrogate's.
ValueId Smooth(GraphBuilder& b, const Surrogate& surrogate, ValueId x) {
  const double k = surrogate.slope;
  switch (surrogate.kind) {
    case SurrogateKind::kAtan: return b.Scale(b.Op("Atan", {b.Scale(x, k * std::numbers::pi / 2)}), std::numbers::inv_pi);
    case SurrogateKind::kFastSigmoid: return b.Op("Softsign", {b.Scale(x, k)});
    case SurrogateKind::kSigmoid: return b.Op("Sigmoid", {b.Scale(x, k)});
    case SurrogateKind::kStraightThrough: break;
  }
  return x;
}

// The constant factor between the derivative of Smooth and the surrogate.
double Factor(const Surrogate& surrogate) { return surrogate.kind == SurrogateKind::kFastSigmoid ? 1 / surrogate.slope : 1; }

void PassIn(GraphBuilder& b, const std::vector<Surrogate>& surrogates, bool is_body, std::vector<int64_t>& given) {
  Graph& graph = b.graph();
  struct Found {
    Step step;
    size_t surrogate;
  };
  std::vector<std::optional<Found>> found(graph.nodes.size());
  {
    const StepFinder finder(graph, is_body);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      const std::optional<Step> step = finder.Find(node);
      if (!step) continue;
      for (size_t s = 0; s < surrogates.size() && !found[i]; ++s) {
        if (!step->compares && surrogates[s].kind != SurrogateKind::kStraightThrough) continue;
        const std::string& pattern = surrogates[s].pattern;
        if (MatchesPattern(pattern, node.origin) || MatchesPattern(pattern, graph.value(node.outputs[0]).name)) found[i] = Found{*step, s};
      }
    }
  }
  if (std::ranges::none_of(found, [](const auto& one) { return one.has_value(); })) return;
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node& node = nodes[i];
    if (!found[i]) {
      graph.AddNode(std::move(node));
      continue;
    }
    const auto& [step, s] = *found[i];
    ++given[s];
    const ValueId y = node.outputs[0];
    const ValueType type = graph.type(y);
    const std::string origin = node.origin;
    node.outputs[0] = graph.AddValue(graph.value(y).name + "/step", type.dtype, type.shape, Role::kActivation);
    const ValueId steps = node.outputs[0];
    graph.AddNode(std::move(node));
    b.set_origin(origin);
    // The step, whose gradient stops, plus a difference that is zero, whose gradient does not.
    ValueId x = step.below == kNoValue ? step.above : b.Sub(step.above, step.below);
    x = b.Cast(x, type.dtype);
    const ValueId smooth = Smooth(b, surrogates[s], x);
    ValueId through = b.Sub(smooth, b.Own("StopGradient", {smooth}));
    if (const double factor = step.height * Factor(surrogates[s]); factor != 1) through = b.Scale(through, factor);
    Node sum{.op = "Add", .inputs = {b.Own("StopGradient", {steps}), through}, .outputs = {y}};
    sum.origin = origin;
    graph.AddNode(std::move(sum));
  }
  b.set_origin("");
}

}  // namespace

std::vector<int64_t> PassSurrogates(GraphBuilder& builder, const std::vector<Surrogate>& surrogates) {
  std::vector<int64_t> given(surrogates.size());
  ForEachBody(builder.graph(), [&](Graph& body) {
    GraphBuilder inner(body, builder.rules());
    PassIn(inner, surrogates, /*is_body=*/true, given);
  });
  PassIn(builder, surrogates, /*is_body=*/false, given);
  return given;
}

std::vector<std::string> StepNames(const Graph& graph) {
  const StepFinder finder(graph, /*is_body=*/false);
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    if (finder.Find(node)) names.push_back(graph.value(node.outputs[0]).name);
  }
  return names;
}

}  // namespace gradloom
