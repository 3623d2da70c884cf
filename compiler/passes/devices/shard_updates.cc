#include "compiler/passes/devices/shard_updates.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/rewrite_nodes.h"
#include "compiler/passes/simplify.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// Whether it is a state of the optimizer, with its value before the step.
bool Optimizes(const Value& value) { return value.optimizes != kNoValue && value.next_of == kNoValue; }

// Appends the broadcast of `next`, the next value of a parameter, from its owner, and returns the result.
ValueId AddBroadcast(Graph& graph, ValueId parameter, ValueId next, int owner, int place) {
  const Node& made = graph.nodes.back();
  const Value value = graph.value(parameter);
  const ValueId result = graph.AddValue(value.name + "/shared", value.dtype, value.shape, Role::kActivation);
  graph.value(result).next_of = parameter;
  Node broadcast{.op = "Broadcast", .domain = std::string(kGradloomDomain), .phase = Phase::kUpdate, .device = made.device};
  broadcast.origin = made.origin;
  broadcast.inputs = {owner == place ? next : parameter};
  broadcast.outputs = {result};
  broadcast.attributes.set("root", int64_t{owner});
  broadcast.attributes.set("tag", int64_t{next});
  broadcast.attributes.set("states", std::vector<std::string>{value.name});
  graph.AddNode(std::move(broadcast));
  return result;
}

}  // namespace

void ShareOutStates(const Graph& graph, const Plan& plan, int devices, StateHolders& holders) {
  std::map<std::string, int> known;  // by parameter
  std::vector<int64_t> bytes(static_cast<size_t>(devices), 0);
  for (const StateTensor& state : plan.state) {
    if (state.kind != StateKind::kOptimizer || state.places.size() != 1) continue;
    known[plan.state[static_cast<size_t>(state.parameter)].name] = state.places.front();
    bytes[static_cast<size_t>(state.places.front())] += state.bytes;
  }
  struct Parameter {
    std::string name;
    int64_t bytes = 0;  // of its states
    std::vector<std::string> states;
  };
  std::map<ValueId, Parameter> parameters;
  for (const Value& value : graph.values()) {
    if (!Optimizes(value) || holders.contains(value.name)) continue;
    Parameter& parameter = parameters[value.optimizes];
    parameter.name = graph.value(value.optimizes).name;
    parameter.bytes += value.shape.elements() * DTypeBytes(value.dtype);
    parameter.states.push_back(value.name);
  }
  std::vector<Parameter> largest;
  for (auto& [id, parameter] : parameters) largest.push_back(std::move(parameter));
  std::stable_sort(largest.begin(), largest.end(), [](const Parameter& a, const Parameter& b) { return a.bytes > b.bytes; });
  for (const Parameter& parameter : largest) {
    const auto before = known.find(parameter.name);
    const auto least = static_cast<int>(std::min_element(bytes.begin(), bytes.end()) - bytes.begin());
    const int place = before != known.end() ? before->second : least;
    if (before == known.end()) bytes[static_cast<size_t>(place)] += parameter.bytes;
    for (const std::string& state : parameter.states) holders[state] = {place};
  }
}

void ShardUpdates(Graph& graph, int place, const StateHolders& holders) {
  std::map<ValueId, int> owners;  // by parameter
  for (const Value& value : graph.values()) {
    if (Optimizes(value)) owners.emplace(value.optimizes, holders.at(value.name).front());
  }
  if (owners.empty()) return;
  std::map<ValueId, ValueId> updated;  // a parameter's next value: the parameter
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    Value& value = graph.value(id);
    if (value.next_of == kNoValue) continue;
    const ValueId state_of = graph.value(value.next_of).optimizes, parameter = state_of != kNoValue ? state_of : value.next_of;
    const auto owner = owners.find(parameter);
    if (owner == owners.end()) continue;
    if (state_of == kNoValue) updated.emplace(id, parameter);
    if (owner->second != place) value.next_of = kNoValue;
  }
  std::map<ValueId, ValueId> received;  // a parameter's next value: the same after the broadcast
  for (Node& node : std::exchange(graph.nodes, {})) {
    ReplaceIds(received, node.inputs);
    const std::vector<ValueId> made = node.outputs;
    graph.nodes.push_back(std::move(node));
    for (const ValueId next : made) {
      const auto parameter = updated.find(next);
      if (parameter != updated.end())
        received.emplace(next, AddBroadcast(graph, parameter->second, next, owners.at(parameter->second), place));
    }
  }
  GRADLOOM_CHECK(received.size() == updated.size());
  RemoveDeadNodes(graph);
}

}  // namespace gradloom
