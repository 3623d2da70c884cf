#include "compiler/passes/gradient/differentiate.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/passes/gradient/differentiate_regions.h"
#include "compiler/passes/region_bodies.h"
#include "runtime/base/counted.h"

namespace gradloom {
namespace {

// Returns, for each value, a wanted value that it depends on differentiably, or kNoValue. Gradients pass through values that have one.
std::vector<ValueId> Dependence(const Graph& graph, std::span<const ValueId> wanted) {
  std::vector<ValueId> depends(static_cast<size_t>(graph.num_values()), kNoValue);
  for (ValueId id : wanted) depends[static_cast<size_t>(id)] = id;
  for (const Node& node : graph.nodes) {
    const Op* op = FindOp(node.domain, node.op);
    if (op != nullptr && op->has(kNoGradient)) continue;
    ValueId source = kNoValue;
    ForEachUse(node, [&](ValueId id) {
      if (source == kNoValue && IsFloating(graph.value(id).dtype)) source = depends[static_cast<size_t>(id)];
    });
    if (source == kNoValue) continue;
    for (ValueId id : node.outputs) {
      if (id != kNoValue && IsFloating(graph.value(id).dtype)) depends[static_cast<size_t>(id)] = source;
    }
  }
  return depends;
}

// Returns the nodes between a wanted value and a value with a gradient, last first.
std::vector<size_t> NodesOnPath(const Graph& graph, const Gradients& seeds, const std::vector<ValueId>& depends) {
  std::vector<bool> reaches(static_cast<size_t>(graph.num_values()));
  for (const auto& [value, gradient] : seeds) reaches[static_cast<size_t>(value)] = true;
  std::vector<size_t> nodes;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool on_path = false;
    for (ValueId id : node.outputs) {
      on_path |= id != kNoValue && reaches[static_cast<size_t>(id)] && depends[static_cast<size_t>(id)] != kNoValue;
    }
    if (!on_path) continue;
    nodes.push_back(i);
    ForEachUse(node, [&](ValueId id) {
      if (depends[static_cast<size_t>(id)] != kNoValue) reaches[static_cast<size_t>(id)] = true;
    });
  }
  return nodes;
}

// Throws one error that lists all operators on the path without a gradient.
void RefuseMissingGradients(const Graph& graph, const std::vector<size_t>& path, const std::vector<ValueId>& depends) {
  std::map<std::string, std::vector<const Node*>> missing;
  for (size_t i : path) {
    const Node& node = graph.nodes[i];
    const Op* op = FindOp(node.domain, node.op);
    if (!node.regions.empty()) continue;  // their bodies are checked when they are differentiated
    if (op == nullptr || op->gradient == nullptr) missing[node.domain.empty() ? node.op : node.domain + "." + node.op].push_back(&node);
  }
  if (missing.empty()) return;
  std::string message, where;
  for (const auto& [op, nodes] : missing) {
    message += (message.empty() ? "no gradient for operator '" : ", '") + Escaped(op) + "' (" + Counted(std::ssize(nodes), "node") + ")";
    const Node& first = *nodes.front();
    ValueId needed_by = kNoValue;
    ForEachUse(first, [&](ValueId id) {
      if (needed_by == kNoValue) needed_by = depends[static_cast<size_t>(id)];
    });
    const std::string name = "'" + Escaped(graph.value(needed_by).name) + "'";
    where += (where.empty() ? "" : "\n      ") + Describe(first) + "    needed " +
             (graph.value(needed_by).role == Role::kInput ? "for the gradient of the input " + name
                                                          : "because " + name + " is trained through it");
  }
  throw Error(ErrorCode::kUnsupported, message, where,
              "freeze the weights before these nodes (--freeze PATTERN), or use an output before them in the loss (--loss)");
}

class Accumulator {
 public:
  explicit Accumulator(GraphBuilder& builder) : b_(builder) {}

  void Add(ValueId value, ValueId gradient) {
    const ValueType want = b_.graph().type(value), got = b_.graph().type(gradient);
    if (want != got) {
      throw Error(ErrorCode::kInternal, "the gradient of '" + Escaped(b_.graph().value(value).name) + "' is " + got.ToString() +
                                            ", but the value is " + want.ToString());
    }
    const auto [at, fresh] = sums_.emplace(value, gradient);
    if (!fresh) at->second = b_.Add(at->second, gradient);
  }

  ValueId at(ValueId value) const {
    const auto found = sums_.find(value);
    return found == sums_.end() ? kNoValue : found->second;
  }

 private:
  GraphBuilder& b_;
  std::map<ValueId, ValueId> sums_;
};

Gradients Backpropagate(GraphBuilder& builder, const Gradients& seeds, std::span<const ValueId> wanted);

void DifferentiateNode(GraphBuilder& builder, size_t position, const std::vector<ValueId>& depends, Accumulator& gradients) {
  // Copied because appending to the graph moves its nodes.
  const Node node = builder.graph().nodes[position];
  std::vector<ValueId> output_gradients;
  bool any = false;
  for (ValueId id : node.outputs) {
    output_gradients.push_back(id == kNoValue ? kNoValue : gradients.at(id));
    any |= output_gradients.back() != kNoValue;
  }
  if (!any) return;
  std::vector<bool> needed;
  for (ValueId id : node.inputs) {
    needed.push_back(id != kNoValue && depends[static_cast<size_t>(id)] != kNoValue && IsFloating(builder.graph().value(id).dtype));
  }
  builder.set_origin(node.origin);
  if (!node.regions.empty()) {
    const std::vector<ValueId> made = DifferentiateRegions(builder, position, output_gradients, needed, Backpropagate);
    for (size_t i = 0; i < made.size(); ++i) {
      if (made[i] != kNoValue && needed[i]) gradients.Add(node.inputs[i], made[i]);
    }
    return;
  }
  GradientContext context(builder, node, std::move(output_gradients), std::move(needed));
  const Op* op = FindOp(node.domain, node.op);
  try {
    op->gradient(context);
  } catch (const Error& error) {
    throw Error(error.code(), error.message(), "gradient of " + Describe(node) + (error.where().empty() ? "" : ", " + error.where()),
                error.help());
  }
  for (int i = 0; i < context.num_inputs(); ++i) {
    const ValueId gradient = context.input_gradients()[static_cast<size_t>(i)];
    if (gradient != kNoValue && context.needs(i)) gradients.Add(node.inputs[static_cast<size_t>(i)], gradient);
  }
}

Gradients Backpropagate(GraphBuilder& builder, const Gradients& seeds, std::span<const ValueId> wanted) {
  Graph& graph = builder.graph();
  const std::vector<ValueId> depends = Dependence(graph, wanted);
  const std::vector<size_t> path = NodesOnPath(graph, seeds, depends);
  RefuseMissingGradients(graph, path, depends);
  const Phase phase = builder.phase();
  builder.set_phase(Phase::kBackward);
  Accumulator gradients(builder);
  for (const auto& [value, gradient] : seeds) gradients.Add(value, gradient);
  for (size_t i : path) DifferentiateNode(builder, i, depends, gradients);
  builder.set_phase(phase);
  builder.set_origin("");
  Gradients result;
  for (ValueId id : wanted) {
    if (gradients.at(id) != kNoValue) result.emplace(id, gradients.at(id));
  }
  return result;
}

// Returns, for each value, whether the loss depends on it through a step function (kSteps).
std::vector<bool> BeforeSteps(const Graph& graph, ValueId loss) {
  std::vector<bool> reaches(static_cast<size_t>(graph.num_values())), stepped(reaches);
  reaches[static_cast<size_t>(loss)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const Op* op = FindOp(node.domain, node.op);
    const bool steps = op != nullptr && op->has(kSteps);
    if (op != nullptr && op->has(kNoGradient) && !steps) continue;
    bool reached = false, after = false;
    for (ValueId id : node.outputs) {
      reached |= id != kNoValue && reaches[static_cast<size_t>(id)];
      after |= id != kNoValue && stepped[static_cast<size_t>(id)];
    }
    if (!reached) continue;
    ForEachUse(node, [&](ValueId id) {
      if (!IsFloating(graph.value(id).dtype)) return;
      reaches[static_cast<size_t>(id)] = true;
      if (steps || after) stepped[static_cast<size_t>(id)] = true;
    });
  }
  return stepped;
}

// Adds a gradient of zeros for each wanted value that has none because all its paths to the loss lead through step functions. Optimizers
// distinguish this from no gradient: weight decay and momentum apply.
void AddZeros(GraphBuilder& builder, ValueId loss, std::span<const ValueId> wanted, Gradients& gradients) {
  if (std::ranges::all_of(wanted, [&](ValueId id) { return gradients.contains(id); })) return;
  const std::vector<bool> stepped = BeforeSteps(builder.graph(), loss);
  for (ValueId id : wanted) {
    if (!gradients.contains(id) && stepped[static_cast<size_t>(id)]) gradients.emplace(id, builder.Zeros(builder.graph().type(id)));
  }
}

}  // namespace

std::map<ValueId, ValueId> Differentiate(GraphBuilder& builder, ValueId loss, std::span<const ValueId> wanted, ValueId scale) {
  Graph& graph = builder.graph();
  const ValueType type = graph.type(loss);
  if (!IsFloating(type.dtype))
    throw Error(ErrorCode::kType, "the loss '" + Escaped(graph.value(loss).name) + "' is " + type.ToString() + ", not floating-point");
  if (type.shape.elements() != 1) {
    throw Error(ErrorCode::kShape, "the loss '" + Escaped(graph.value(loss).name) + "' is " + type.ToString() + ", not a scalar");
  }
  const Phase phase = builder.phase();
  builder.set_phase(Phase::kBackward);
  const ValueId seed = scale == kNoValue ? builder.Fill(type, 1.0) : builder.Reshape(builder.Cast(scale, type.dtype), type.shape);
  builder.set_phase(phase);
  Gradients gradients = Backpropagate(builder, {{loss, seed}}, wanted);
  builder.set_phase(Phase::kBackward);
  AddZeros(builder, loss, wanted, gradients);
  builder.set_phase(phase);
  return gradients;
}

void DropStops(Graph& graph) {
  const auto drop = [](Graph& part) {
    for (Node& node : part.nodes) {
      if ((node.op != "StopGradient" && node.op != "MaskGradient") || node.domain != kGradloomDomain) continue;
      node.op = "Identity";
      node.inputs.resize(1);
      node.domain.clear();
      node.attributes = {};
    }
  };
  ForEachBody(graph, drop);
  drop(graph);
}

}  // namespace gradloom
