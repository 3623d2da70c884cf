#include "compiler/passes/accumulate.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/rewrite_nodes.h"

namespace gradloom {
namespace {

ValueId SumState(GraphBuilder& b, ValueId parameter, bool partial) {
  const Value& value = b.graph().value(parameter);
  const ValueId sum = b.graph().AddValue(value.name + "/grad_sum", value.dtype, value.shape, Role::kState);
  b.graph().value(sum).partial = partial;
  return sum;
}

}  // namespace

void AddAccumulation(GraphBuilder& b, const std::map<ValueId, ValueId>& gradients, double factor, bool partial) {
  for (const auto& [parameter, gradient] : gradients) {
    const ValueId sum = SumState(b, parameter, partial);
    const ValueId next = b.Add(sum, b.Scale(gradient, factor));
    b.graph().value(next).next_of = sum;
  }
}

std::map<ValueId, ValueId> TakeAccumulated(GraphBuilder& b, std::span<const ValueId> parameters, bool partial) {
  std::map<ValueId, ValueId> gradients;
  for (ValueId parameter : parameters) {
    const ValueId sum = SumState(b, parameter, partial);
    gradients.emplace(parameter, sum);
    const ValueType type = b.graph().type(sum);
    // Never an alias of a scalar constant: Expand of equal shapes would be no node at all.
    const ValueId zero = b.Op("Mul", {b.Zeros({type.dtype, Shape{}}), b.Zeros(type)});
    b.graph().value(zero).next_of = sum;
  }
  return gradients;
}

void SumPartialStates(Graph& graph, int64_t bucket_bytes) {
  // In the order in which they are read, with the device of the first node that does.
  std::vector<std::pair<ValueId, int>> read;
  std::set<ValueId> seen;
  for (const Node& node : graph.nodes) {
    ForEachUse(node, [&](ValueId id) {
      const Value& value = graph.value(id);
      if (value.partial && value.role == Role::kState && value.next_of == kNoValue && seen.insert(id).second)
        read.emplace_back(id, node.device);
    });
  }
  if (read.empty()) return;
  std::map<ValueId, ValueId> whole;
  std::vector<Node> meetings;
  std::vector<std::string> states;
  int64_t bytes = 0;
  const auto close = [&] {
    if (!states.empty()) meetings.back().attributes.set("states", std::exchange(states, {}));
    bytes = 0;
  };
  for (const auto& [id, device] : read) {
    const Value value = graph.value(id);
    const int64_t own = value.shape.elements() * DTypeBytes(value.dtype);
    if (bytes + own > bucket_bytes) close();
    if (states.empty()) {
      meetings.push_back({.op = "AllReduce", .domain = std::string(kGradloomDomain), .phase = Phase::kComm, .device = device});
      meetings.back().attributes.set("tag", int64_t{id});
    }
    // In the layout of the parameter, as a gradient is.
    states.push_back(value.name.substr(0, value.name.rfind('/')));
    bytes += own;
    whole.emplace(id, graph.AddValue(value.name + "/whole", value.dtype, value.shape, Role::kGradient));
    meetings.back().inputs.push_back(id);
    meetings.back().outputs.push_back(whole.at(id));
  }
  close();
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  for (Node& meeting : meetings) graph.AddNode(std::move(meeting));
  for (Node& node : nodes) {
    ReplaceIds(whole, node.inputs);
    graph.nodes.push_back(std::move(node));
  }
}

}  // namespace gradloom
