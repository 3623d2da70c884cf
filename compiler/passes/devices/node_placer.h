// Places the nodes of a graph on stages (place_devices.h), by rules or by given names.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/passes/devices/place_devices.h"
#include "compiler/passes/recipe.h"

namespace gradloom {

// The search for cuts places a graph thousands of times, so the constructor looks up everything that has a name.
class NodePlacer {
 public:
  static constexpr int kUnplaced = -1;

  // Both must outlive it. Between placements, nodes may only change their `device`.
  NodePlacer(Graph& graph, const std::vector<PlaceRule>& rules);

  // As PlaceDevices().
  void Place(Stages& stages);

  // The names of all nodes that have one, each once, in the order in which they first appear.
  const std::vector<std::string>& names() const { return names_; }
  // By node: the position of its name in names(); -1 if it has none.
  const std::vector<int>& name_of_node() const { return name_of_node_; }
  // Places the graph anew: a node of the forward pass on the stage of its name, by position in names(), and all others as PlaceDevices().
  void Place(const std::vector<int>& stage_of_name);

  // After a placement: the stage that produces or keeps a value. Feeds are on the first one; kUnplaced for constants.
  int StageOf(ValueId id) const { return stage_[static_cast<size_t>(id)]; }

 private:
  // A parameter or a state.
  struct KeptValue {
    ValueId id = kNoValue;
    ValueId parameter = kNoValue;  // for a state of a parameter that the graph has
    std::string parameter_name;    // for a state of any parameter
  };

  void Run(const Stages* given);
  void Set(Node& node, int stage);
  int ByName(const Node& node, int name);
  int ByOperands(const Node& node) const;
  void Inherit();
  int FirstReader(const Node& node) const;
  void KeepStates(const Stages* given);
  int ByStates(const Node& node) const;
  void CheckRules() const;

  int& At(ValueId id) { return stage_[static_cast<size_t>(id)]; }

  Graph& graph_;
  const std::vector<PlaceRule>& rules_;
  std::vector<std::string> names_;
  std::vector<int> name_of_node_;
  std::vector<KeptValue> kept_;
  std::vector<bool> is_kept_;  // by value
  const std::vector<ValueId> feeds_;

  // The current placement.
  std::vector<int> assigned_;       // by name: the stage that its forward nodes are given
  std::vector<int> stage_of_name_;  // by name: the stage that its gradients follow
  std::vector<int> keeper_;         // by value: the stage that keeps it
  std::vector<int> stage_;          // by value
  std::vector<int> reader_;         // by value: the stage that reads it first
  std::vector<bool> fitted_;        // by rule: whether it matched anything
};

}  // namespace gradloom
