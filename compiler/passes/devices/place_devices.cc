#include "compiler/passes/devices/place_devices.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/passes/devices/node_placer.h"
#include "compiler/passes/loss/add_loss.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int kUnplaced = NodePlacer::kUnplaced;

// Walks the nodes once and gives each stage its own nodes, with transfers in between.
class Splitter {
 public:
  Splitter(const Graph& graph, const Stages& stages)
      : graph_(graph), stages_(stages), home_(static_cast<size_t>(graph.num_values()), kUnplaced) {
    // Without nodes, each of which only one stage gets.
    const std::unique_ptr<Graph> values = graph.Clone();
    values->nodes = std::vector<Node>();
    for (int s = 0; s < stages.count; ++s) result_.push_back(values->Clone());
    for (const Value& value : graph.values()) {
      if (IsKept(value)) home_[static_cast<size_t>(value.id)] = stages.of_state.at(value.name);
    }
    for (const Node& node : graph.nodes) {
      for (ValueId id : node.outputs) {
        if (id != kNoValue) home_[static_cast<size_t>(id)] = node.device;
      }
    }
    for (const Node& node : graph.nodes) {
      ForEachUse(node, [&](ValueId id) {
        if (Home(id) != kUnplaced && Home(id) != node.device) readers_[id].insert(node.device);
      });
    }
  }

  std::vector<std::unique_ptr<Graph>> Run() {
    for (const Node& node : graph_.nodes) {
      ForEachUse(node, [&](ValueId id) {
        if (IsKept(graph_.value(id)) && Home(id) != node.device) Transfer(id, node.device, node);
      });
      Graph& graph = *result_[static_cast<size_t>(node.device)];
      Node own = node;
      for (ValueId& id : own.inputs) id = There(id, node.device);
      graph.nodes.push_back(std::move(own));
      for (ValueId id : node.outputs) {
        if (id == kNoValue || !readers_.contains(id)) continue;
        for (int stage : readers_.at(id)) Transfer(id, stage, node);
      }
    }
    for (int s = 0; s < stages_.count; ++s) Finish(*result_[static_cast<size_t>(s)], s);
    return std::move(result_);
  }

 private:
  int Home(ValueId id) const { return home_[static_cast<size_t>(id)]; }

  // Returns the value's id in the graph of the stage.
  ValueId There(ValueId id, int stage) const {
    const auto received = received_.find({id, stage});
    return received == received_.end() ? id : received->second;
  }

  void Transfer(ValueId id, int stage, const Node& cause) {
    if (received_.contains({id, stage})) return;
    const Value& value = graph_.value(id);
    GRADLOOM_CHECK(!value.partial);
    // A parameter has its role only on the stage that keeps it; other stages have a copy.
    Graph& to = *result_[static_cast<size_t>(stage)];
    const ValueId copy = IsKept(value) ? to.AddValue(value.name + "/received", value.dtype, value.shape, Role::kActivation) : id;
    received_.emplace(std::pair(id, stage), copy);
    const std::string domain(kGradloomDomain);
    const std::string origin = cause.origin.empty() ? value.name : cause.origin;
    const int64_t tag = ++transfers_;
    Node send{.op = "Send",
              .domain = domain,
              .inputs = {id},
              .attributes = {{"peer", int64_t{stage}}, {"tag", tag}},
              .phase = cause.phase,
              .origin = origin};
    result_[static_cast<size_t>(Home(id))]->AddNode(std::move(send));
    const std::vector<int64_t> dims(value.shape.begin(), value.shape.end());
    Node recv{.op = "Recv",
              .domain = domain,
              .outputs = {copy},
              .attributes = {{"peer", int64_t{Home(id)}}, {"tag", tag}, {"dtype", static_cast<int64_t>(value.dtype)}, {"shape", dims}},
              .phase = cause.phase,
              .origin = origin};
    to.AddNode(std::move(recv));
  }

  // Removes outputs and next values that the stage does not compute.
  void Finish(Graph& graph, int stage) const {
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      if (graph_.value(id).next_of != kNoValue && Home(id) != stage) graph.value(id).next_of = kNoValue;
      if (IsKept(graph_.value(id)) && Home(id) != stage) Forget(graph, id);
    }
    std::erase_if(graph.outputs, [&](ValueId id) { return Home(id) == kUnplaced ? stage != 0 : Home(id) != stage; });
  }

  static void Forget(Graph& graph, ValueId id) {
    Value& value = graph.value(id);
    value.role = Role::kActivation;
    value.optimizes = value.accumulates = kNoValue;
    graph.drop_data(id);
  }

  const Graph& graph_;
  const Stages& stages_;
  std::vector<std::unique_ptr<Graph>> result_;
  std::vector<int> home_;                     // by value id: the stage that produces or keeps it; nowhere: each has it
  std::map<ValueId, std::set<int>> readers_;  // other stages that read a value
  std::map<std::pair<ValueId, int>, ValueId> received_;
  int64_t transfers_ = 0;
};

}  // namespace

int CountStages(const std::vector<PlaceRule>& rules) {
  int count = 1;
  for (const PlaceRule& rule : rules) count = std::max(count, rule.stage + 1);
  return count;
}

void PlaceDevices(Graph& graph, const std::vector<PlaceRule>& rules, Stages& stages) { NodePlacer(graph, rules).Place(stages); }

void PartLoss(Graph& graph, const LossNodes& loss) {
  if (graph.outputs.empty()) return;
  const auto sums = [&](const Node& node) {
    return loss.contains(node.id) && node.phase == Phase::kForward && node.origin == kLossSum && node.op == "Add";
  };
  const Uses uses(graph);
  std::set<int> stages;
  std::vector<ValueId> open{graph.outputs[0]};
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    const int made = uses.producer[static_cast<size_t>(id)];
    if (made < 0) return;
    const Node& node = graph.nodes[static_cast<size_t>(made)];
    if (sums(node)) {
      open.insert(open.end(), {node.inputs[1], node.inputs[0]});
    } else {
      stages.insert(node.device);
    }
  }
  if (stages.size() < 2) return;
  graph.outputs.erase(graph.outputs.begin());
  std::erase_if(graph.nodes, sums);
}

std::vector<std::unique_ptr<Graph>> SplitStages(const Graph& graph, const Stages& stages) { return Splitter(graph, stages).Run(); }

}  // namespace gradloom
