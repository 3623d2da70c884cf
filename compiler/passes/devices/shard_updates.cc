#include "compiler/passes/devices/shard_updates.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/rewrite_nodes.h"
#include "compiler/passes/schedule/node_order.h"
#include "compiler/passes/schedule/refusals.h"
#include "compiler/passes/simplify.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// Whether it is a state of the optimizer, with its value before the step.
bool Optimizes(const Value& value) { return value.optimizes != kNoValue && value.next_of == kNoValue; }

// By parameter with states of the optimizer: the device that holds them.
std::map<ValueId, int> OwnersOf(const Graph& graph, const StateHolders& holders) {
  std::map<ValueId, int> owners;
  for (const Value& value : graph.values()) {
    if (Optimizes(value)) owners.emplace(value.optimizes, holders.at(value.name).front());
  }
  return owners;
}

// The parameter of which the value is the next value, or the next value of a state; kNoValue if it is neither.
ValueId UpdatedBy(const Graph& graph, const Value& value) {
  if (value.next_of == kNoValue) return kNoValue;
  const ValueId state_of = graph.value(value.next_of).optimizes;
  return state_of != kNoValue ? state_of : value.next_of;
}

// Who needs a value.
constexpr int kNobody = -1, kSeveral = -2;
int Join(int a, int b) { return a == kNobody || a == b ? b : b == kNobody ? a : kSeveral; }

// Whether the node adds up the squares of a tensor during the update, as clipping and a loss scale need them of each gradient.
bool AddsSquares(const Node& node) { return node.op == "ReduceSumSquare" && node.domain.empty() && node.phase == Phase::kUpdate; }

// Gradients that may have an owner: partial values, and results of all-reduces.
std::set<ValueId> SummedGradients(const Graph& graph) {
  std::set<ValueId> summed;
  for (const Value& value : graph.values()) {
    if (value.partial) summed.insert(value.id);
  }
  for (const Node& node : graph.nodes) {
    if (IsAllReduce(node)) summed.insert(node.outputs.begin(), node.outputs.end());
  }
  return summed;
}

// By value: the device whose updates alone depend on it, kNobody or kSeveral. Its owner tells all devices the sum of a gradient's squares.
std::vector<int> Readers(const Graph& graph, const std::map<ValueId, int>& owners) {
  const std::set<ValueId> summed = SummedGradients(graph);
  std::vector<int> readers(static_cast<size_t>(graph.num_values()), kNobody);
  const auto reader = [&](ValueId id) -> int& { return readers[static_cast<size_t>(id)]; };
  for (ValueId id : graph.outputs) reader(id) = kSeveral;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    int of_node = IsCollective(node) ? kSeveral : kNobody;
    for (ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      const Value& made = graph.value(id);
      const auto owner = owners.find(UpdatedBy(graph, made));
      // What reads the next value of a parameter reads what its owner broadcasts.
      if (owner == owners.end() || made.next_of != owner->first) of_node = Join(of_node, reader(id));
      if (made.next_of != kNoValue) of_node = Join(of_node, owner != owners.end() ? owner->second : kSeveral);
    }
    if (AddsSquares(node) && summed.contains(node.inputs[0])) continue;
    ForEachUse(node, [&](ValueId id) { reader(id) = Join(reader(id), of_node); });
  }
  return readers;
}

// The value by which GradientOwners names what the all-reduce sums as operand k.
ValueId SummedBy(const Graph& graph, const Node& all_reduce, size_t k) {
  return graph.value(all_reduce.inputs[k]).partial ? all_reduce.inputs[k] : all_reduce.outputs[k];
}

// Appends the all-reduce without the operands that have an owner, and a reduce of these. One reduce has operands of several roots: so there
// are as few collectives as there were buckets, and the devices, of which each sums what it owns, share the work of each.
// Adds to `owned` the results of that reduce, which the other devices lack.
void AddSums(Graph& graph, const Node& node, int place, const GradientOwners& owners, std::map<ValueId, int>& owned) {
  Node all_reduce = node, reduce = node;
  reduce.op = "Reduce";
  for (Node* sum : {&all_reduce, &reduce}) sum->inputs.clear(), sum->outputs.clear();
  const std::vector<std::string> states = node.attributes.Strings("states");
  std::vector<std::string> all_reduced, reduced;
  std::vector<int64_t> roots;
  // A tag is a value that no other collective sums, the same one on all devices.
  int64_t tag = node.attributes.Int("tag", 0);
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    const ValueId summed = SummedBy(graph, node, k);
    const auto owner = owners.find(summed);
    if (owner == owners.end()) {
      if (all_reduced.empty() && !roots.empty() && tag == reduce.attributes.Int("tag", 0)) tag = summed;
      all_reduce.inputs.push_back(node.inputs[k]);
      all_reduce.outputs.push_back(node.outputs[k]);
      all_reduced.push_back(states.at(k));
      continue;
    }
    owned.emplace(node.outputs[k], owner->second);
    if (roots.empty()) reduce.attributes.set("tag", int64_t{summed});
    reduce.inputs.push_back(node.inputs[k]);
    reduce.outputs.push_back(owner->second == place ? node.outputs[k] : kNoValue);
    reduced.push_back(states.at(k));
    roots.push_back(owner->second);
  }
  all_reduce.attributes.set("states", std::move(all_reduced));
  all_reduce.attributes.set("tag", tag);
  reduce.attributes.set("states", std::move(reduced));
  reduce.attributes.set("roots", std::move(roots));
  for (Node* sum : {&all_reduce, &reduce}) {
    if (!sum->inputs.empty()) graph.AddNode(std::move(*sum));
  }
}

// Gives all devices the sums of squares of the gradients that one device has, by one all-reduce. The devices without a gradient add zero,
// so the sums keep their bits. `owned`: gradient -> the device that has it.
void TellSquares(Graph& graph, int place, const std::map<ValueId, int>& owned) {
  const auto owner_of = [&](const Node& node) {
    const auto found = AddsSquares(node) ? owned.find(node.inputs[0]) : owned.end();
    return found == owned.end() ? kNobody : found->second;
  };
  auto left = std::ranges::count_if(graph.nodes, [&](const Node& node) { return owner_of(node) != kNobody; });
  if (left == 0) return;
  Node all_reduce{.op = "AllReduce", .domain = std::string(kGradloomDomain), .phase = Phase::kUpdate};
  std::set<ValueId> told;    // what the all-reduce makes, and what is computed from it
  std::vector<Node> behind;  // nodes that read these
  for (Node& node : std::exchange(graph.nodes, {})) {
    bool reads = false;
    ForEachUse(node, [&](ValueId id) { reads = reads || told.contains(id); });
    const int owner = owner_of(node);
    if (owner == kNobody) {
      if (reads) told.insert(node.outputs.begin(), node.outputs.end());
      (reads && left > 0 ? behind : graph.nodes).push_back(std::move(node));
      continue;
    }
    const ValueId squares = node.outputs[0];
    const Value value = graph.value(squares);
    if (all_reduce.inputs.empty()) all_reduce.attributes.set("tag", int64_t{squares});
    all_reduce.device = node.device;
    all_reduce.outputs.push_back(squares);
    told.insert(squares);
    if (owner == place) {
      node.outputs[0] = graph.AddValue(value.name + "/own", value.dtype, value.shape, Role::kActivation);
      all_reduce.inputs.push_back(node.outputs[0]);
      graph.nodes.push_back(std::move(node));
    } else {
      all_reduce.inputs.push_back(graph.AddData(value.name + "/none", Tensor(value.dtype, value.shape), Role::kConst));
    }
    if (--left > 0) continue;
    all_reduce.attributes.set("states", std::vector<std::string>(all_reduce.inputs.size()));
    graph.AddNode(std::move(all_reduce));
    std::ranges::move(behind, std::back_inserter(graph.nodes));
  }
}

// Makes outputs of what updates read of the backward pass.
void KeepGradients(Graph& graph) {
  std::set<ValueId> backward, outputs(graph.outputs.begin(), graph.outputs.end());
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::kBackward) backward.insert(node.outputs.begin(), node.outputs.end());
    if (node.phase != Phase::kUpdate) continue;
    ForEachUse(node, [&](ValueId id) {
      if (id != kNoValue && backward.contains(id) && outputs.insert(id).second) graph.outputs.push_back(id);
    });
  }
}

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
    parameter.bytes += value.bytes();
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

GradientOwners FindGradientOwners(const Graph& graph, const StateHolders& holders) {
  const std::vector<int> readers = Readers(graph, OwnersOf(graph, holders));
  const auto owned = [&](ValueId id) { return readers[static_cast<size_t>(id)] >= 0; };
  const std::vector<int> refusing = RefusingNodes(graph);
  bool informed = refusing.empty();  // whether devices know that no other refuses the batch
  GradientOwners owners;
  for (const Value& value : graph.values()) {
    if (value.partial && owned(value.id)) owners.emplace(value.id, readers[static_cast<size_t>(value.id)]);
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!IsAllReduce(graph.nodes[i])) continue;
    for (ValueId id : graph.nodes[i].outputs) {
      if (owned(id)) owners.emplace(id, readers[static_cast<size_t>(id)]);
      informed = informed || (!owned(id) && static_cast<int>(i) > refusing.back());
    }
  }
  // The sums of squares of these gradients reach all devices.
  for (size_t i = 0; i < graph.nodes.size() && !informed; ++i)
    informed = AddsSquares(graph.nodes[i]) && owners.contains(graph.nodes[i].inputs[0]) && static_cast<int>(i) > refusing.back();
  return informed ? owners : GradientOwners{};
}

void ShardUpdates(Graph& graph, int place, const StateHolders& holders, const GradientOwners& gradient_owners, bool alike) {
  const std::map<ValueId, int> owners = OwnersOf(graph, holders);
  if (owners.empty()) return;
  std::map<ValueId, ValueId> updated;  // a parameter's next value: the parameter
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    Value& value = graph.value(id);
    if (value.next_of == kNoValue) continue;
    const auto owner = owners.find(UpdatedBy(graph, value));
    if (owner == owners.end()) continue;
    if (value.next_of == owner->first) updated.emplace(id, owner->first);
    if (owner->second != place) value.next_of = kNoValue;
  }
  std::map<ValueId, int> owned;         // a gradient that one device has: that device
  std::map<ValueId, ValueId> received;  // a parameter's next value: the same after the broadcast
  for (Node& node : std::exchange(graph.nodes, {})) {
    ReplaceIds(received, node.inputs);
    if (IsAllReduce(node)) {
      AddSums(graph, node, place, gradient_owners, owned);
      continue;
    }
    const std::vector<ValueId> made = node.outputs;
    graph.nodes.push_back(std::move(node));
    for (const ValueId next : made) {
      const auto parameter = updated.find(next);
      if (parameter != updated.end())
        received.emplace(next, AddBroadcast(graph, parameter->second, next, owners.at(parameter->second), place));
    }
  }
  GRADLOOM_CHECK(received.size() == updated.size());
  TellSquares(graph, place, owned);
  if (alike) KeepGradients(graph);
  RemoveDeadNodes(graph);
}

}  // namespace gradloom
