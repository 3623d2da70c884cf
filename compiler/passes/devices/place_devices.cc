#include "compiler/passes/devices/place_devices.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "compiler/passes/devices/node_placer.h"
#include "compiler/passes/loss/add_loss.h"
#include "compiler/passes/rewrite_nodes.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int kUnplaced = NodePlacer::kUnplaced;

// Walks the nodes once and notes what each stage has: its own nodes, with transfers in between. Graphs are made one at a time, because each
// has all values.
class Splitter {
 public:
  Splitter(const Graph& graph, const Stages& stages)
      : graph_(graph),
        stages_(static_cast<size_t>(stages.count)),
        values_(graph.Clone()),
        home_(static_cast<size_t>(graph.num_values()), kUnplaced) {
    values_->nodes = std::vector<Node>();
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
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      ForEachUse(node, [&](ValueId id) {
        if (IsKept(graph_.value(id)) && Home(id) != node.device) AddTransfer(id, node.device, i);
      });
      StageAt(node.device).steps.push_back({Step::kNode, i});
      for (ValueId id : node.outputs) {
        if (id == kNoValue || !readers_.contains(id)) continue;
        for (int stage : readers_.at(id)) AddTransfer(id, stage, i);
      }
    }
  }

  std::unique_ptr<Graph> Make(int stage) const {
    std::unique_ptr<Graph> graph = values_->Clone();
    // A parameter has its role only on the stage that keeps it; other stages have a copy.
    for (const ValueId id : StageAt(stage).copies) {
      const Value& value = graph_.value(id);
      graph->AddValue(value.name + "/received", value.dtype, value.shape, Role::kActivation);
    }
    for (const Step& step : StageAt(stage).steps) {
      if (step.kind == Step::kNode) {
        Node own = graph_.nodes[step.at];
        for (ValueId& id : own.inputs) id = There(id, stage);
        graph->nodes.push_back(std::move(own));
      } else {
        graph->AddNode(step.kind == Step::kSend ? SendOf(step.at) : RecvOf(step.at));
      }
    }
    Finish(*graph, stage);
    return graph;
  }

 private:
  struct Step {
    enum Kind : uint8_t { kNode, kSend, kRecv } kind;
    size_t at;  // in the nodes, or in transfers_
  };
  struct OfStage {
    std::vector<Step> steps;
    std::vector<ValueId> copies;  // of parameters that other stages keep, in the order of their ids in this stage's graph
  };
  struct Transfer {
    ValueId id = kNoValue;
    int to = 0;
    ValueId copy = kNoValue;  // the value's id in the receiving graph
    size_t cause = 0;         // the node that makes or reads it
  };

  int Home(ValueId id) const { return home_[static_cast<size_t>(id)]; }
  OfStage& StageAt(int stage) { return stages_[static_cast<size_t>(stage)]; }
  const OfStage& StageAt(int stage) const { return stages_[static_cast<size_t>(stage)]; }

  // Returns the value's id in the graph of the stage.
  ValueId There(ValueId id, int stage) const {
    const auto received = received_.find({id, stage});
    return received == received_.end() ? id : received->second;
  }

  void AddTransfer(ValueId id, int stage, size_t cause) {
    if (received_.contains({id, stage})) return;
    const Value& value = graph_.value(id);
    GRADLOOM_CHECK(!value.partial);
    ValueId copy = id;
    if (IsKept(value)) {
      copy = graph_.num_values() + static_cast<ValueId>(StageAt(stage).copies.size());
      StageAt(stage).copies.push_back(id);
    }
    received_.emplace(std::pair(id, stage), copy);
    StageAt(Home(id)).steps.push_back({Step::kSend, transfers_.size()});
    StageAt(stage).steps.push_back({Step::kRecv, transfers_.size()});
    transfers_.push_back({id, stage, copy, cause});
  }

  // A transfer's node on one of its sides, without operands. `peer`: the other side.
  Node SideOf(size_t at, const char* op, int peer) const {
    const Transfer& transfer = transfers_[at];
    const Node& cause = graph_.nodes[transfer.cause];
    return {.op = op,
            .domain = std::string(kGradloomDomain),
            .attributes = {{"peer", int64_t{peer}}, {"tag", static_cast<int64_t>(at + 1)}},
            .phase = cause.phase,
            .origin = cause.origin.empty() ? graph_.value(transfer.id).name : cause.origin};
  }

  Node SendOf(size_t at) const {
    Node send = SideOf(at, "Send", transfers_[at].to);
    send.inputs = {transfers_[at].id};
    return send;
  }

  Node RecvOf(size_t at) const {
    const Value& value = graph_.value(transfers_[at].id);
    Node recv = SideOf(at, "Recv", Home(value.id));
    recv.outputs = {transfers_[at].copy};
    recv.attributes.set("dtype", static_cast<int64_t>(value.dtype));
    recv.attributes.set("shape", std::vector<int64_t>(value.shape.begin(), value.shape.end()));
    return recv;
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
    value.optimizes = value.accumulates = value.averages = kNoValue;
    graph.drop_data(id);
  }

  const Graph& graph_;
  std::vector<OfStage> stages_;
  const std::unique_ptr<Graph> values_;       // the graph without nodes
  std::vector<int> home_;                     // by value id: the stage that produces or keeps it; nowhere: each has it
  std::map<ValueId, std::set<int>> readers_;  // other stages that read a value
  std::map<std::pair<ValueId, int>, ValueId> received_;
  std::vector<Transfer> transfers_;
};

}  // namespace

int CountStages(const std::vector<PlaceRule>& rules) {
  int count = 1;
  for (const PlaceRule& rule : rules) count = std::max(count, rule.stage + 1);
  return count;
}

void PlaceDevices(Graph& graph, const std::vector<PlaceRule>& rules, Stages& stages) {
  NodePlacer placer(graph, rules);
  placer.Place(stages);
  if (!std::exchange(stages.checked, true)) placer.CheckRules(stages);
}

void PlaceModel(Graph& graph, const std::vector<PlaceRule>& rules, Stages& stages) {
  NodePlacer(graph, rules).Place(stages);
  std::vector<int> home(static_cast<size_t>(graph.num_values()), kUnplaced);  // kUnplaced: needs no boundary
  std::map<std::pair<ValueId, int>, ValueId> there;                           // by value and stage
  for (Node& node : std::exchange(graph.nodes, {})) {
    const bool is_fixed = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      return id == kNoValue || (home[static_cast<size_t>(id)] == kUnplaced && !IsKept(graph.value(id)));
    });
    for (ValueId id : node.outputs) {
      if (id != kNoValue && !is_fixed) home[static_cast<size_t>(id)] = node.device;
    }
    for (ValueId& id : node.inputs) {
      const int from = id == kNoValue ? kUnplaced : home[static_cast<size_t>(id)];
      if (from == kUnplaced || from == node.device) continue;
      const auto [known, fresh] = there.emplace(std::pair(id, node.device), kNoValue);
      if (fresh) {
        const Value value = graph.value(id);
        known->second = graph.AddValue(value.name + "/stage" + std::to_string(node.device), value.dtype, value.shape, Role::kActivation);
        graph.AddNode({.op = "StageBoundary",
                       .domain = std::string(kGradloomDomain),
                       .inputs = {id},
                       .outputs = {known->second},
                       .phase = node.phase,
                       .device = node.device});
      }
      id = known->second;
    }
    graph.nodes.push_back(std::move(node));
  }
}

void DropBoundaries(Graph& graph) {
  std::map<ValueId, ValueId> operands;
  std::erase_if(graph.nodes, [&](const Node& node) {
    if (node.op != "StageBoundary" || node.domain != kGradloomDomain) return false;
    operands.emplace(node.outputs[0], node.inputs[0]);
    return true;
  });
  for (Node& node : graph.nodes) ReplaceIds(operands, node.inputs);
}

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
    const Node* const node = uses.ProducingNode(graph, id);
    if (node == nullptr) return;
    if (sums(*node)) {
      open.insert(open.end(), {node->inputs[1], node->inputs[0]});
    } else {
      stages.insert(node->device);
    }
  }
  if (stages.size() < 2) return;
  graph.outputs.erase(graph.outputs.begin());
  std::erase_if(graph.nodes, sums);
}

void SplitStages(const Graph& graph, const Stages& stages, const std::function<void(int, Graph&)>& take) {
  const Splitter splitter(graph, stages);
  for (int stage = 0; stage < stages.count; ++stage) {
    const std::unique_ptr<Graph> own = splitter.Make(stage);
    take(stage, *own);
  }
}

}  // namespace gradloom
