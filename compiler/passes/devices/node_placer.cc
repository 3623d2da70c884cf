#include "compiler/passes/devices/node_placer.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "compiler/passes/memory/place_state.h"
#include "runtime/base/error.h"
#include "runtime/base/name_pattern.h"

namespace gradloom {
namespace {

// Converts "/encoder/layer.0/MatMul" to the form that people write: "encoder.layer.0.MatMul".
std::string Dotted(std::string name) {
  name.erase(0, name.find_first_not_of('/') == std::string::npos ? name.size() : name.find_first_not_of('/'));
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

// Returns the stage given for the node of this name, or for the call that contains it.
int AssignedStage(const Stages& stages, std::string name) {
  while (!name.empty() && !stages.of_node.empty()) {
    if (const auto known = stages.of_node.find(name); known != stages.of_node.end()) return known->second;
    const size_t slash = name.rfind('/');
    name.resize(slash == std::string::npos ? 0 : slash);
  }
  return NodePlacer::kUnplaced;
}

int StageIn(const std::map<std::string, int>& stages, const std::string& name) {
  const auto known = stages.find(name);
  return known == stages.end() ? NodePlacer::kUnplaced : known->second;
}

size_t Index(int i) { return static_cast<size_t>(i); }

}  // namespace

NodeValues::NodeValues(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    for (const std::vector<ValueId>* list : {&node.inputs, &node.outputs}) {
      std::copy_if(list->begin(), list->end(), std::back_inserter(ids_), [](ValueId id) { return id != kNoValue; });
      ends_.push_back(ids_.size());
    }
  }
}

NodePlacer::NodePlacer(Graph& graph, const std::vector<PlaceRule>& rules)
    : graph_(graph), rules_(rules), values_(graph), is_kept_(Index(graph.num_values())), feeds_(FeedsOf(graph)) {
  std::map<std::string, int> numbers;
  for (const Node& node : graph.nodes) {
    phase_.push_back(node.phase);
    if (node.origin.empty()) {
      name_of_node_.push_back(-1);
      continue;
    }
    const auto [at, fresh] = numbers.emplace(node.origin, static_cast<int>(names_.size()));
    if (fresh) names_.push_back(node.origin);
    name_of_node_.push_back(at->second);
  }
  for (const Value& value : graph.values()) {
    next_of_.push_back(value.next_of);
    is_constant_.push_back(value.role == Role::kConst);
    if (!IsKept(value)) continue;
    is_kept_[Index(value.id)] = true;
    KeptValue kept{.id = value.id};
    if (const size_t slash = value.name.rfind('/'); slash != std::string::npos) {
      kept.parameter_name = value.name.substr(0, slash);
      const ValueId parameter = graph.Find(kept.parameter_name);
      if (parameter != kNoValue && IsKept(graph.value(parameter))) kept.parameter = parameter;
    }
    kept_.push_back(std::move(kept));
  }
}

void NodePlacer::Place(Stages& stages) {
  assigned_.clear();
  stage_of_name_.clear();
  for (const std::string& name : names_) {
    assigned_.push_back(AssignedStage(stages, name));
    stage_of_name_.push_back(StageIn(stages.of_node, name));
  }
  keeper_.assign(Index(graph_.num_values()), kUnplaced);
  for (const KeptValue& kept : kept_) keeper_[Index(kept.id)] = StageIn(stages.of_state, graph_.value(kept.id).name);
  device_.clear();
  for (const Node& node : graph_.nodes) device_.push_back(node.device);
  Run(&stages);
  stages.fitted.resize(rules_.size());
  for (size_t i = 0; i < rules_.size(); ++i) stages.fitted[i] = stages.fitted[i] || fitted_[i];
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    graph_.nodes[i].device = device_[i];
    const int name = name_of_node_[i];
    if (phase_[i] == Phase::kForward && name >= 0) stages.of_node.emplace(names_[Index(name)], device_[i]);
  }
  for (const KeptValue& kept : kept_) stages.of_state.emplace(graph_.value(kept.id).name, keeper_[Index(kept.id)]);
}

void NodePlacer::Place(const std::vector<int>& stage_of_name) {
  assigned_ = stage_of_name_ = stage_of_name;
  keeper_.assign(Index(graph_.num_values()), kUnplaced);
  device_.assign(graph_.nodes.size(), kUnplaced);
  Run(nullptr);
}

// `given`: where earlier entries have their nodes and states, if there are any.
void NodePlacer::Run(const Stages* given) {
  stage_.assign(Index(graph_.num_values()), kUnplaced);
  fitted_.assign(rules_.size(), false);
  is_fed_.assign(Index(graph_.num_values()), false);
  for (ValueId id : feeds_) is_fed_[Index(id)] = true;
  for (size_t i = 0; i < device_.size(); ++i) {
    if (phase_[i] == Phase::kForward) PlaceForward(i);
  }
  Inherit();
  KeepStates(given);
  for (size_t i = 0; i < device_.size(); ++i) {
    if (phase_[i] == Phase::kBackward) {
      const int name = name_of_node_[i], forward = name < 0 ? kUnplaced : stage_of_name_[Index(name)];
      Set(i, forward == kUnplaced ? ByOperands(i) : forward);
    }
    if (phase_[i] == Phase::kUpdate) Set(i, ByStates(i));
  }
  for (size_t i = 0; i < device_.size(); ++i) {
    if (device_[i] == kUnplaced) Set(i, 0);
  }
}

void NodePlacer::Set(size_t node, int stage) {
  device_[node] = stage;
  for (ValueId id : values_.outputs(node)) At(id) = stage;
}

// Every stage is fed, so what is computed from feeds alone, such as the weights of a batch's labels, is placed where it is read (Inherit).
// Otherwise feeds count as values of the first stage.
void NodePlacer::PlaceForward(size_t node) {
  const std::span<const ValueId> inputs = values_.inputs(node);
  const auto is_fed = [&](ValueId id) { return is_fed_[Index(id)]; };
  const bool reads_feeds = std::any_of(inputs.begin(), inputs.end(), is_fed);
  const bool only_feeds =
      reads_feeds && std::all_of(inputs.begin(), inputs.end(), [&](ValueId id) { return is_fed(id) || is_constant_[Index(id)]; });
  const int stage = device_[node] >= 0 ? device_[node] : ByName(node);
  if (stage != kUnplaced || !only_feeds) return Set(node, stage == kUnplaced && reads_feeds ? 0 : stage);
  for (ValueId id : values_.outputs(node)) is_fed_[Index(id)] = true;
}

int NodePlacer::ByName(size_t node) {
  const int name = name_of_node_[node];
  if (name >= 0 && assigned_[Index(name)] != kUnplaced) return assigned_[Index(name)];
  if (rules_.empty()) return ByOperands(node);
  std::vector<std::string> names;
  if (name >= 0) names = {names_[Index(name)], Dotted(names_[Index(name)])};
  for (ValueId id : values_.inputs(node)) {
    if (graph_.data(id) != nullptr && !graph_.value(id).derived) names.push_back(graph_.value(id).name);
  }
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (!PatternMatchesAny(rules_[i].pattern, names)) continue;
    fitted_[i] = true;
    return rules_[i].stage;
  }
  return ByOperands(node);
}

// Returns the last stage that produces an operand.
int NodePlacer::ByOperands(size_t node) const {
  int stage = kUnplaced;
  for (ValueId id : values_.inputs(node)) stage = std::max(stage, StageOf(id));
  return stage;
}

// A node that depends only on weights, or only on feeds, goes to the stage that first reads it; if there is none, to the first stage.
void NodePlacer::Inherit() {
  reader_.assign(Index(graph_.num_values()), kUnplaced);
  for (size_t i = device_.size(); i-- > 0;) {
    if (phase_[i] != Phase::kForward) continue;
    if (device_[i] == kUnplaced) Set(i, FirstReader(i));
    for (ValueId id : values_.inputs(i)) reader_[Index(id)] = device_[i];
  }
  for (size_t i = 0; i < device_.size(); ++i) {
    if (phase_[i] != Phase::kForward) continue;
    if (device_[i] == kUnplaced) Set(i, std::max(ByOperands(i), 0));
    const int name = name_of_node_[i];
    if (name >= 0 && stage_of_name_[Index(name)] == kUnplaced) stage_of_name_[Index(name)] = device_[i];
  }
}

int NodePlacer::FirstReader(size_t node) const {
  int stage = kUnplaced;
  for (ValueId id : values_.outputs(node)) {
    const int reader = reader_[Index(id)];
    if (reader != kUnplaced) stage = stage == kUnplaced ? reader : std::min(stage, reader);
  }
  return stage;
}

// Parameters and statistics are kept where the forward pass first reads them; optimizer state is kept with its parameter.
void NodePlacer::KeepStates(const Stages* given) {
  for (size_t i = 0; i < device_.size(); ++i) {
    if (phase_[i] != Phase::kForward) continue;
    for (ValueId id : values_.inputs(i)) {
      if (is_kept_[Index(id)] && keeper_[Index(id)] == kUnplaced) keeper_[Index(id)] = device_[i];
    }
  }
  for (const KeptValue& kept : kept_) {
    int& stage = keeper_[Index(kept.id)];
    if (stage == kUnplaced && kept.parameter != kNoValue) stage = keeper_[Index(kept.parameter)];
    if (stage == kUnplaced && kept.parameter == kNoValue && given != nullptr) stage = StageIn(given->of_state, kept.parameter_name);
    if (stage == kUnplaced) stage = 0;
    At(kept.id) = stage;
  }
}

// An update runs where its state is kept.
int NodePlacer::ByStates(size_t node) const {
  for (ValueId id : values_.outputs(node)) {
    if (next_of_[Index(id)] != kNoValue) return StageOf(next_of_[Index(id)]);
  }
  int stage = kUnplaced;
  for (ValueId id : values_.inputs(node)) {
    if (is_kept_[Index(id)]) stage = StageOf(id);
  }
  return stage == kUnplaced ? ByOperands(node) : stage;
}

void NodePlacer::CheckRules(const Stages& stages) const {
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (stages.fitted[i]) continue;
    throw Error(ErrorCode::kConfig,
                "--place '" + Escaped(rules_[i].pattern) +
                    "' matches no node and no weight of the model, or only those that an earlier pattern matches",
                "--place", "patterns consist of names, * and ?; --dump-after place_devices prints the nodes");
  }
}

}  // namespace gradloom
