#include "compiler/passes/place_devices.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/passes/add_loss.h"
#include "compiler/passes/place_state.h"
#include "runtime/base/error.h"
#include "runtime/base/name_pattern.h"

namespace gradloom {
namespace {

constexpr int kUnplaced = -1;

// Converts "/encoder/layer.0/MatMul" to the form that people write: "encoder.layer.0.MatMul".
std::string Dotted(std::string name) {
  name.erase(0, name.find_first_not_of('/') == std::string::npos ? name.size() : name.find_first_not_of('/'));
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

class Placer {
 public:
  Placer(Graph& graph, const std::vector<PlaceRule>& rules, Stages& stages)
      : graph_(graph), rules_(rules), stages_(stages), stage_(static_cast<size_t>(graph.num_values()), kUnplaced), fitted_(rules.size()) {}

  void Run() {
    const bool first = stages_.of_node.empty() && stages_.of_state.empty();
    for (ValueId id : FeedsOf(graph_)) At(id) = 0;
    for (Node& node : graph_.nodes) {
      if (node.phase == Phase::kForward) Set(node, node.device >= 0 ? node.device : ByName(node));
    }
    if (first) CheckRules();
    Inherit();
    KeepStates();
    for (Node& node : graph_.nodes) {
      if (node.phase == Phase::kBackward) Set(node, ByOrigin(node));
      if (node.phase == Phase::kUpdate) Set(node, ByStates(node));
    }
    for (Node& node : graph_.nodes) {
      if (node.device == kUnplaced) Set(node, 0);
    }
  }

 private:
  int& At(ValueId id) { return stage_[static_cast<size_t>(id)]; }

  void Set(Node& node, int stage) {
    node.device = stage;
    for (ValueId id : node.outputs) {
      if (id != kNoValue) At(id) = stage;
    }
  }

  int ByName(const Node& node) {
    if (const int known = AssignedStage(node.origin); known != kUnplaced) return known;
    std::vector<std::string> names;
    if (!node.origin.empty()) names = {node.origin, Dotted(node.origin)};
    ForEachUse(node, [&](ValueId id) {
      if (graph_.data(id) != nullptr && !graph_.value(id).derived) names.push_back(graph_.value(id).name);
    });
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (!PatternMatchesAny(rules_[i].pattern, names)) continue;
      fitted_[i] = true;
      return rules_[i].stage;
    }
    return ByOperands(node);
  }

  // Returns the stage given for the node, or for the call that contains it.
  int AssignedStage(std::string name) const {
    while (!name.empty() && !stages_.of_node.empty()) {
      if (const auto known = stages_.of_node.find(name); known != stages_.of_node.end()) return known->second;
      const size_t slash = name.rfind('/');
      name.resize(slash == std::string::npos ? 0 : slash);
    }
    return kUnplaced;
  }

  // Returns the last stage that produces an operand.
  int ByOperands(const Node& node) {
    int stage = kUnplaced;
    ForEachUse(node, [&](ValueId id) { stage = std::max(stage, At(id)); });
    return stage;
  }

  // A node that depends only on weights goes to the stage that first reads it; if there is none, to the first stage.
  void Inherit() {
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      Node& node = graph_.nodes[i];
      if (node.phase != Phase::kForward) continue;
      if (node.device == kUnplaced) Set(node, FirstReader(node));
      ForEachUse(node, [&](ValueId id) { readers_[id] = node.device; });
    }
    for (Node& node : graph_.nodes) {
      if (node.phase != Phase::kForward) continue;
      if (node.device == kUnplaced) Set(node, std::max(ByOperands(node), 0));
      if (!node.origin.empty()) stages_.of_node.emplace(node.origin, node.device);
    }
  }

  int FirstReader(const Node& node) const {
    int stage = kUnplaced;
    for (ValueId id : node.outputs) {
      const auto reader = readers_.find(id);
      if (reader != readers_.end() && reader->second != kUnplaced)
        stage = stage == kUnplaced ? reader->second : std::min(stage, reader->second);
    }
    return stage;
  }

  // Parameters and statistics are kept where the forward pass first reads them; optimizer state is kept with its parameter.
  void KeepStates() {
    for (const Node& node : graph_.nodes) {
      if (node.phase != Phase::kForward) continue;
      ForEachUse(node, [&](ValueId id) {
        if (IsKept(graph_.value(id))) stages_.of_state.emplace(graph_.value(id).name, node.device);
      });
    }
    for (const Value& value : graph_.values()) {
      if (!IsKept(value)) continue;
      const size_t slash = value.name.rfind('/');
      const auto parameter = slash == std::string::npos ? stages_.of_state.end() : stages_.of_state.find(value.name.substr(0, slash));
      const int stage = parameter == stages_.of_state.end() ? 0 : parameter->second;
      At(value.id) = stages_.of_state.emplace(value.name, stage).first->second;
    }
  }

  int ByOrigin(const Node& node) {
    const auto known = node.origin.empty() ? stages_.of_node.end() : stages_.of_node.find(node.origin);
    return known != stages_.of_node.end() ? known->second : ByOperands(node);
  }

  // An update runs where its state is kept.
  int ByStates(const Node& node) {
    for (ValueId id : node.outputs) {
      if (id != kNoValue && graph_.value(id).next_of != kNoValue) return At(graph_.value(id).next_of);
    }
    int stage = kUnplaced;
    ForEachUse(node, [&](ValueId id) {
      if (IsKept(graph_.value(id))) stage = At(id);
    });
    return stage == kUnplaced ? ByOperands(node) : stage;
  }

  void CheckRules() const {
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (fitted_[i]) continue;
      throw Error(ErrorCode::kConfig,
                  "--place '" + Escaped(rules_[i].pattern) +
                      "' matches no node and no weight of the model, or only those that an earlier pattern matches",
                  "--place", "patterns consist of names, * and ?; --dump-after place_devices prints the nodes");
    }
  }

  Graph& graph_;
  const std::vector<PlaceRule>& rules_;
  Stages& stages_;
  std::vector<int> stage_;          // by value id: where it is produced or kept
  std::map<ValueId, int> readers_;  // the stage that first reads a value
  std::vector<bool> fitted_;        // by rule
};

// Walks the nodes once and gives each stage its own nodes, with transfers in between.
class Splitter {
 public:
  Splitter(const Graph& graph, const Stages& stages)
      : graph_(graph), stages_(stages), home_(static_cast<size_t>(graph.num_values()), kUnplaced) {
    for (int s = 0; s < stages.count; ++s) {
      result_.push_back(graph.Clone());
      result_.back()->nodes.clear();
    }
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

void PlaceDevices(Graph& graph, const std::vector<PlaceRule>& rules, Stages& stages) { Placer(graph, rules, stages).Run(); }

void PartLoss(Graph& graph, NodeId first_loss_node) {
  if (graph.outputs.empty()) return;
  const auto sums = [&](const Node& node) {
    return node.id >= first_loss_node && node.phase == Phase::kForward && node.origin == kLossSum && node.op == "Add";
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
