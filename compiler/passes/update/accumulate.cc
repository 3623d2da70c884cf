#include "compiler/passes/update/accumulate.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/rewrite_nodes.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

ValueId SumState(GraphBuilder& b, ValueId parameter, bool partial) {
  const Value& value = b.graph().value(parameter);
  const ValueId sum = b.graph().AddValue(value.name + "/grad_sum", value.dtype, value.shape, Role::kState);
  b.graph().value(sum).accumulates = parameter;
  b.graph().value(sum).partial = partial;
  return sum;
}

void SetToZero(GraphBuilder& b, ValueId sum) {
  const ValueType type = b.graph().type(sum);
  // A node in any case: Expand of equal shapes would be removed, and a state's next value must not be a constant.
  const ValueId zero = b.Op("Mul", {b.Zeros({type.dtype, Shape{}}), b.Zeros(type)});
  b.graph().value(zero).next_of = sum;
}

ValueId WeightState(GraphBuilder& b) {
  return b.graph().AddValue(std::string(kAccumulatedWeightState), DType::kInt64, Shape{}, Role::kState);
}

ValueId WithWeight(GraphBuilder& b, ValueId before, int64_t weight) { return b.Add(before, b.Constant(Tensor::Scalar<int64_t>(weight))); }

// The index of the node that makes each value.
std::map<ValueId, int> Producers(const Graph& graph) {
  std::map<ValueId, int> producers;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (ValueId id : graph.nodes[i].outputs) producers.emplace(id, static_cast<int>(i));
  }
  return producers;
}

// A partial value to sum, the device of the node that reads or computes it, and the index of the first node that may follow its
// all-reduce.
struct Part {
  ValueId id = kNoValue;
  int device = -1;
  size_t at = 0;
};

// In the order in which they become available.
std::vector<Part> PartialValues(const Graph& graph) {
  std::vector<Part> states, sums;
  std::set<ValueId> seen;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (AddsToPart(graph, node)) {
      if (graph.value(node.outputs[0]).partial) sums.push_back({node.outputs[0], node.device, i + 1});
      continue;
    }
    ForEachUse(node, [&](ValueId id) {
      const Value& value = graph.value(id);
      if (value.partial && value.role == Role::kState && seen.insert(id).second) states.push_back({id, node.device, 0});
    });
  }
  states.insert(states.end(), sums.begin(), sums.end());
  return states;
}

}  // namespace

bool KeepsParts(const Recipe& recipe, int copies) {
  return recipe.accumulate > 1 && recipe.gather_to < 0 && !recipe.fetch_gradients && copies > 1;
}

bool DividesByWeight(const Recipe& recipe) {
  const auto sums = [](const LossTerm& term) { return term.reduction == "sum"; };
  return recipe.accumulate > 1 && !(recipe.accumulate_samples && std::all_of(recipe.losses.begin(), recipe.losses.end(), sums));
}

int64_t WeightOfBatch(const Recipe& recipe, int64_t samples) { return recipe.accumulate_samples ? samples : 1; }

void AddAccumulation(GraphBuilder& b, const std::map<ValueId, ValueId>& gradients, double factor, bool partial) {
  for (const auto& [parameter, gradient] : gradients) {
    const ValueId sum = SumState(b, parameter, partial);
    const ValueId next = b.Add(sum, b.Scale(gradient, factor));
    b.graph().value(next).next_of = sum;
  }
}

std::map<ValueId, ValueId> TakeAccumulated(GraphBuilder& b, std::span<const ValueId> parameters, const Plan& plan, bool partial) {
  std::set<std::string> with_sums;
  for (const StateTensor& state : plan.state) {
    if (state.kind == StateKind::kAccumulator && state.parameter >= 0)
      with_sums.insert(plan.state[static_cast<size_t>(state.parameter)].name);
  }
  const auto accumulated = [&](ValueId parameter) { return with_sums.contains(b.graph().value(parameter).name); };
  const bool any = std::any_of(parameters.begin(), parameters.end(), accumulated);
  std::map<ValueId, ValueId> gradients;
  for (ValueId parameter : parameters) {
    if (any && !accumulated(parameter)) continue;
    const ValueId sum = SumState(b, parameter, partial);
    gradients.emplace(parameter, sum);
    SetToZero(b, sum);
  }
  return gradients;
}

std::map<ValueId, ValueId> CompleteAccumulation(GraphBuilder& b, const std::map<ValueId, ValueId>& gradients, double factor, bool partial) {
  Graph& graph = b.graph();
  const std::map<ValueId, int> producers = Producers(graph);
  std::vector<int> positions(graph.nodes.size());  // of each node: the index of the one that it follows
  std::iota(positions.begin(), positions.end(), 0);
  std::map<ValueId, ValueId> totals;
  std::vector<ValueId> sums;
  for (const auto& [parameter, gradient] : gradients) {
    const ValueId sum = sums.emplace_back(SumState(b, parameter, partial));
    Node add{.op = "Add", .inputs = {sum, b.Scale(gradient, factor)}, .phase = b.phase()};
    const Value value = graph.value(parameter);
    const ValueId total = graph.AddValue(value.name + "/grad_total", value.dtype, value.shape, Role::kGradient);
    graph.value(total).partial = partial;
    add.outputs = {total};
    graph.AddNode(std::move(add));
    totals.emplace(parameter, total);
    const auto producer = producers.find(gradient);
    positions.resize(graph.nodes.size(), producer == producers.end() ? -1 : producer->second);
  }
  std::vector<size_t> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t c) { return positions[a] < positions[c]; });
  std::vector<Node> nodes;
  for (const size_t i : order) nodes.push_back(std::move(graph.nodes[i]));
  graph.nodes = std::move(nodes);
  for (const ValueId sum : sums) SetToZero(b, sum);
  return totals;
}

void AddWeight(GraphBuilder& b, int64_t weight) {
  const ValueId state = WeightState(b);
  const ValueId next = WithWeight(b, state, weight);
  b.graph().value(next).next_of = state;
}

ValueId TakeWeight(GraphBuilder& b, const Recipe& recipe, int64_t weight) {
  const ValueId state = WeightState(b);
  SetToZero(b, state);
  if (!DividesByWeight(recipe)) return kNoValue;
  return weight == 0 ? state : WithWeight(b, state, weight);
}

bool AddsToPart(const Graph& graph, const Node& node) {
  if (node.op != "Add" || node.outputs.size() != 1 || node.outputs[0] == kNoValue) return false;
  const Value& made = graph.value(node.outputs[0]);
  return made.partial || (made.next_of != kNoValue && graph.value(made.next_of).partial);
}

size_t AddedOperand(const Graph& graph, const Node& node) {
  const bool first = graph.value(node.inputs[0]).partial;
  GRADLOOM_CHECK(first != graph.value(node.inputs[1]).partial);
  return first ? 1 : 0;
}

void SumPartialValues(Graph& graph, int64_t bucket_bytes) {
  std::map<ValueId, ValueId> whole;
  std::vector<std::pair<size_t, Node>> collectives;  // with the index of the node that each precedes
  std::vector<std::string> states;
  int64_t bytes = 0;
  const auto close = [&] {
    if (!states.empty()) collectives.back().second.attributes.set("states", std::exchange(states, {}));
    bytes = 0;
  };
  for (const auto& [id, device, at] : PartialValues(graph)) {
    const Value value = graph.value(id);
    const int64_t own = value.bytes();
    if (bytes + own > bucket_bytes) close();
    if (states.empty()) {
      collectives.emplace_back(at,
                               Node{.op = "AllReduce", .domain = std::string(kGradloomDomain), .phase = Phase::kUpdate, .device = device});
      collectives.back().second.attributes.set("tag", int64_t{id});
    }
    // In the layout of the parameter, like its gradient.
    states.push_back(value.name.substr(0, value.name.rfind('/')));
    bytes += own;
    whole.emplace(id, graph.AddValue(value.name + "/whole", value.dtype, value.shape, Role::kGradient));
    auto& [position, node] = collectives.back();
    position = at;
    node.inputs.push_back(id);
    node.outputs.push_back(whole.at(id));
  }
  close();
  if (collectives.empty()) return;
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  auto next = collectives.begin();
  for (size_t i = 0; i <= nodes.size(); ++i) {
    for (; next != collectives.end() && next->first == i; ++next) graph.AddNode(std::move(next->second));
    if (i == nodes.size()) break;
    if (!AddsToPart(graph, nodes[i])) ReplaceIds(whole, nodes[i].inputs);
    graph.nodes.push_back(std::move(nodes[i]));
  }
}

}  // namespace gradloom
