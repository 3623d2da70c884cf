#include "compiler/passes/region_bodies.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "compiler/ops/op.h"
#include "compiler/passes/simplify.h"

namespace gradloom {
namespace {

constexpr int64_t kMaxSunkBytes = 4 << 10;

bool IsLoop(const Node& node) { return node.op == "Loop"; }

// Returns the number of loop-carried values.
size_t CarriedBy(const Node& node) { return IsLoop(node) ? static_cast<size_t>(node.attributes.Int("carried", 0)) : 0; }

// Returns, by position, whether the graph's outputs or nodes read an input.
std::vector<bool> InputsRead(const Graph& graph) {
  std::vector<bool> read(static_cast<size_t>(graph.num_values()));
  for (const Node& node : graph.nodes) ForEachUse(node, [&](ValueId id) { read[static_cast<size_t>(id)] = true; });
  for (ValueId id : graph.outputs) read[static_cast<size_t>(id)] = true;
  std::vector<bool> inputs;
  for (ValueId id : graph.inputs) inputs.push_back(read[static_cast<size_t>(id)]);
  return inputs;
}

template <typename T>
void KeepOnly(std::vector<T>& list, const std::vector<bool>& kept, size_t first = 0) {
  std::vector<T> left(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(first));
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i]) left.push_back(std::move(list[first + i]));
  }
  list = std::move(left);
}

// Returns which loop-carried values are needed: `live` ones, and those that they depend on.
std::vector<bool> LiveCarriedValues(const Node& node, std::vector<bool> live) {
  const Graph& body = *node.regions[0].body;
  for (bool grows = true; grows;) {
    grows = false;
    const std::unique_ptr<Graph> probe = body.Clone();
    KeepOnly(probe->outputs, live);
    RemoveDeadNodes(*probe);
    const std::vector<bool> read = InputsRead(*probe);
    for (size_t i = 0; i < live.size(); ++i) {
      if (!read[i] || live[i]) continue;
      live[i] = grows = true;
    }
  }
  return live;
}

// Makes every output the result of a separate node. Adds a copy for views, inputs, constants, repeated outputs, and outputs of a loop,
// which share memory with its initial values.
void MakeOutputs(Graph& body) {
  std::set<ValueId> made;
  for (const Node& node : body.nodes) {
    if (KeepsElements(node) || (IsLoop(node) && !node.regions.empty())) continue;
    made.insert(node.outputs.begin(), node.outputs.end());
  }
  for (ValueId& id : body.outputs) {
    if (made.erase(id) > 0) continue;
    const Value value = body.value(id);
    Node copy{.op = "Copy", .domain = std::string(kGradloomDomain), .inputs = {id}};
    copy.outputs = {body.AddValue(value.name + "/result", value.dtype, value.shape, Role::kActivation)};
    copy.origin = value.name;
    id = body.AddNode(std::move(copy)).outputs[0];
  }
}

void HoistConstants(Graph& graph, Node& node) {
  for (size_t r = 0; r < node.regions.size(); ++r) {
    Graph& body = *node.regions[r].body;
    const Uses uses(body);
    for (ValueId id = 0; id < body.num_values(); ++id) {
      const Value& value = body.value(id);
      if (value.role != Role::kConst || uses.consumers[static_cast<size_t>(id)].empty()) continue;
      const ValueId outer = graph.AddData(value.name, *body.data(id), Role::kConst);
      graph.value(outer).derived = true;
      node.inputs.push_back(outer);
      for (size_t other = 0; other < node.regions.size(); ++other) {
        Graph& beside = *node.regions[other].body;
        beside.inputs.push_back(other == r ? id : beside.AddValue("unused", value.dtype, value.shape, Role::kInput));
      }
      body.value(id).role = Role::kInput;
      body.drop_data(id);
    }
  }
}

// Copies the initial values of a loop, which overwrites them.
void CopyCarried(Graph& graph, Node& node) {
  Graph& body = *node.regions[0].body;
  for (size_t i = 0; i < CarriedBy(node); ++i) {
    const Value value = graph.value(node.inputs[i + 1]);
    Node copy{.op = "Copy", .domain = std::string(kGradloomDomain), .inputs = {node.inputs[i + 1]}, .phase = node.phase};
    copy.outputs = {graph.AddValue(value.name + "/round", value.dtype, value.shape, Role::kActivation)};
    copy.origin = node.origin;
    node.inputs[i + 1] = graph.AddNode(std::move(copy)).outputs[0];
    body.value(body.outputs[i]).next_of = body.inputs[i];
  }
}

}  // namespace

void ForEachBody(Graph& graph, const std::function<void(Graph&)>& f) {
  for (Node& node : graph.nodes) {
    for (Region& region : node.regions) {
      ForEachBody(*region.body, f);
      f(*region.body);
    }
  }
}

void SinkConstants(const Graph& graph, Node& node) {
  const size_t first = CarriedBy(node), count = node.inputs.size() - 1;
  std::vector<bool> kept(count, true);
  for (size_t i = first; i < count; ++i) {
    const ValueId id = node.inputs[i + 1];
    const Tensor* data = graph.value(id).role == Role::kConst ? graph.data(id) : nullptr;
    if (data == nullptr || data->bytes() > kMaxSunkBytes) continue;
    kept[i] = false;
    for (Region& region : node.regions) {
      const ValueId inner = region.body->inputs[i];
      region.body->value(inner).role = Role::kConst;
      region.body->value(inner).derived = true;
      region.body->set_data(inner, *data);
    }
  }
  KeepOnly(node.inputs, kept, 1);
  for (Region& region : node.regions) KeepOnly(region.body->inputs, kept);
}

void TrimBodies(Node& node, const std::vector<bool>& wanted) {
  std::vector<bool> live;
  for (ValueId id : node.outputs) live.push_back(id != kNoValue && wanted[static_cast<size_t>(id)]);
  if (IsLoop(node)) {
    if (node.attributes.Int("conditional", 0) != 0) live[0] = true;
    live = LiveCarriedValues(node, std::move(live));
    const auto carried = std::count(live.begin(), live.end(), true);
    std::vector<bool> operands = live;
    operands.resize(node.inputs.size() - 1, true);
    KeepOnly(node.inputs, operands, 1);
    KeepOnly(node.regions[0].body->inputs, operands);
    node.attributes.set("carried", int64_t{carried});
  }
  KeepOnly(node.outputs, live);
  const size_t first = CarriedBy(node);
  std::vector<bool> read(node.inputs.size() - 1, false);
  std::fill(read.begin(), read.begin() + static_cast<std::ptrdiff_t>(first), true);
  for (Region& region : node.regions) {
    KeepOnly(region.body->outputs, live);
    RemoveDeadNodes(*region.body);
    const std::vector<bool> here = InputsRead(*region.body);
    for (size_t i = 0; i < read.size(); ++i) read[i] = read[i] || here[i];
  }
  KeepOnly(node.inputs, read, 1);
  for (Region& region : node.regions) KeepOnly(region.body->inputs, read);
}

void LowerBodies(Graph& graph) {
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  for (Node& node : nodes) {
    for (Region& region : node.regions) {
      LowerBodies(*region.body);
      MakeOutputs(*region.body);
    }
    if (!node.regions.empty()) {
      HoistConstants(graph, node);
      if (IsLoop(node)) CopyCarried(graph, node);
    }
    graph.nodes.push_back(std::move(node));
  }
}

}  // namespace gradloom
