// Places the nodes of a graph on stages (place_devices.h), by rules or by given names.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/passes/devices/place_devices.h"
#include "compiler/passes/recipe.h"

namespace gradloom {

// The operands and results of a graph's nodes in two arrays, without those that are absent. To walk them takes a fraction of the time that
// nodes take, which are large and far apart.
class NodeValues {
 public:
  explicit NodeValues(const Graph& graph);

  std::span<const ValueId> inputs(size_t node) const { return Of(ids_, ends_, 2 * node); }
  std::span<const ValueId> outputs(size_t node) const { return Of(ids_, ends_, 2 * node + 1); }

 private:
  static std::span<const ValueId> Of(const std::vector<ValueId>& ids, const std::vector<size_t>& ends, size_t list) {
    return std::span(ids).subspan(ends[list], ends[list + 1] - ends[list]);
  }

  std::vector<ValueId> ids_;
  std::vector<size_t> ends_{0};  // of the lists in ids_: the inputs of each node, then its outputs
};

// The search for cuts places a graph thousands of times, so the constructor looks up everything that has a name.
class NodePlacer {
 public:
  static constexpr int kUnplaced = -1;

  // Both must outlive it. The graph must not change meanwhile, except for the devices of nodes.
  NodePlacer(Graph& graph, const std::vector<PlaceRule>& rules);

  // As PlaceDevices(), which sets `device` of every node. Does not check rules.
  void Place(Stages& stages);
  // Throws Error(kConfig) for a rule that matched nothing.
  void CheckRules(const Stages& stages) const;

  // The names of all nodes that have one, each once, in the order in which they first appear.
  const std::vector<std::string>& names() const { return names_; }
  // By node: the position of its name in names(); -1 if it has none.
  const std::vector<int>& name_of_node() const { return name_of_node_; }
  // Places the graph anew, without changing it: a node of the forward pass on the stage of its name, by position in names(), and all others
  // as PlaceDevices().
  void Place(const std::vector<int>& stage_of_name);

  const NodeValues& values() const { return values_; }
  // After a placement: the stage of each node.
  const std::vector<int>& devices() const { return device_; }
  // After a placement: the stage that produces or keeps a value; kUnplaced for feeds and constants.
  int StageOf(ValueId id) const { return stage_[static_cast<size_t>(id)]; }

 private:
  // A parameter or a state.
  struct KeptValue {
    ValueId id = kNoValue;
    ValueId parameter = kNoValue;  // for a state of a parameter that the graph has
    std::string parameter_name;    // for a state of any parameter
  };

  void Run(const Stages* given);
  // These take the position of a node.
  void Set(size_t node, int stage);
  void PlaceForward(size_t node);
  int ByName(size_t node);
  int ByOperands(size_t node) const;
  void Inherit();
  int FirstReader(size_t node) const;
  void KeepStates(const Stages* given);
  int ByStates(size_t node) const;

  int& At(ValueId id) { return stage_[static_cast<size_t>(id)]; }

  Graph& graph_;
  const std::vector<PlaceRule>& rules_;
  std::vector<std::string> names_;
  std::vector<int> name_of_node_;
  NodeValues values_;
  std::vector<Phase> phase_;      // by node
  std::vector<ValueId> next_of_;  // by value
  std::vector<KeptValue> kept_;
  std::vector<bool> is_kept_, is_constant_;  // by value
  const std::vector<ValueId> feeds_;

  // The current placement.
  std::vector<int> device_;         // by node
  std::vector<int> assigned_;       // by name: the stage that its forward nodes are given
  std::vector<int> stage_of_name_;  // by name: the stage that its gradients follow
  std::vector<int> keeper_;         // by value: the stage that keeps it
  std::vector<int> stage_;          // by value
  std::vector<int> reader_;         // by value: the stage that reads it first
  std::vector<bool> is_fed_;        // by value: a feed, or computed from feeds and constants alone
  std::vector<bool> fitted_;        // by rule: whether it matched anything
};

}  // namespace gradloom
