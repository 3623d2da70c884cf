#include "compiler/passes/devices/cut_stages.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/cost/cost_model.h"
#include "compiler/passes/devices/node_placer.h"
#include "compiler/passes/schedule/node_order.h"

namespace gradloom {
namespace {

// The largest number of nodes before which cuts are tried; they divide the work evenly.
constexpr size_t kMaxPlaces = 48;
constexpr int kMaxRounds = 4;
constexpr int kMaxStages = 64;

int64_t BytesOf(const Value& value) { return value.shape.elements() * DTypeBytes(value.dtype); }

// The cost of a placement by the cost model, estimated before memory is planned.
struct PlacementEstimate {
  double seconds = 0;    // time of a step: of its slowest device, with transfers and all-reduces
  int64_t bytes = 0;     // memory of the device that uses most: states, constants and the values live at once
  int64_t too_much = 0;  // bytes above the limit, of the device that exceeds it most

  bool better_than(const PlacementEstimate& other) const {
    return std::tie(too_much, seconds, bytes) < std::tie(other.too_much, other.seconds, other.bytes);
  }
};

// Estimates placements of a graph over the whole batch, with loss, gradients and updates, whose nodes are placed on `stages` devices;
// `copies` of the model share the batch. What does not depend on the placement is computed once.
class Estimator {
 public:
  Estimator(const Graph& graph, const NodePlacer& placer, int stages, int copies, const Recipe& recipe)
      : graph_(graph), placer_(placer), num_stages_(stages), copies_(copies), costs_(DefaultCosts(recipe.device)) {
    for (const Value& value : graph.values()) bytes_.push_back(BytesOf(value));
    for (const Node& node : graph.nodes) {
      const double share = node.phase == Phase::kUpdate ? 1.0 : 1.0 / copies;
      // Replicas share the work of nodes that depend on samples; each performs all updates.
      seconds_.push_back(IsView(node) ? 0 : share * SecondsOf(CostOf(graph, node), recipe.threads, costs_));
    }
  }

  // Of the current placement. `limit`: bytes of a device; 0: any.
  PlacementEstimate Run(int64_t limit) {
    FindHomes();
    PlacementEstimate made{.seconds = Seconds()};
    const std::vector<int64_t> live = PeakLiveBytes();
    for (int s = 0; s < num_stages_; ++s) {
      const int64_t bytes = kept_[At(s)] + live[At(s)];
      made.bytes = std::max(made.bytes, bytes);
      if (limit > 0) made.too_much = std::max(made.too_much, bytes - limit);
    }
    return made;
  }

 private:
  // A value on a stage.
  struct Life {
    int placement = 0;  // for which `last` is known
    int last = 0;       // the last node that touches it
    int constant = 0;   // the placement for which it is counted as a constant
  };

  static size_t At(int i) { return static_cast<size_t>(i); }

  void FindHomes() {
    home_.assign(bytes_.size(), -1);
    kept_.assign(At(num_stages_), 0);
    for (const Value& value : graph_.values()) {
      if (!IsKept(value)) continue;
      home_[At(value.id)] = placer_.StageOf(value.id);
      kept_[At(home_[At(value.id)])] += bytes_[At(value.id)];
    }
    for (const Node& node : graph_.nodes) {
      for (ValueId id : node.outputs) {
        if (id != kNoValue) home_[At(id)] = node.device;
      }
    }
  }

  // Estimates the step time: each stage runs its nodes one after the other, in list order.
  double Seconds() const {
    std::vector<double> free(At(num_stages_), 0), ready(home_.size(), 0);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (IsView(node)) {
        ready[At(node.outputs[0])] = ready[At(node.inputs[0])];
        continue;
      }
      double& at = free[At(node.device)];
      for (ValueId id : node.inputs) {
        if (id == kNoValue) continue;
        double there = ready[At(id)];
        if (home_[At(id)] >= 0 && home_[At(id)] != node.device) {
          const double bytes = static_cast<double>(bytes_[At(id)]) * (IsKept(graph_.value(id)) ? 1.0 : 1.0 / copies_);
          there += costs_.collective_seconds + bytes / costs_.link_bytes_per_second;
        }
        at = std::max(at, there);
      }
      at += seconds_[i];
      for (ValueId id : node.outputs) {
        if (id != kNoValue) ready[At(id)] = at;
      }
    }
    if (copies_ > 1) {
      const std::vector<int64_t> bytes = ParameterBytes();
      for (int s = 0; s < num_stages_; ++s)
        free[At(s)] += costs_.collective_seconds + 2 * static_cast<double>(bytes[At(s)]) / costs_.link_bytes_per_second;
    }
    return *std::max_element(free.begin(), free.end());
  }

  // By stage.
  std::vector<int64_t> ParameterBytes() const {
    std::vector<int64_t> bytes(At(num_stages_), 0);
    for (const Value& value : graph_.values()) {
      if (value.role == Role::kParam && IsKept(value)) bytes[At(home_[At(value.id)])] += bytes_[At(value.id)];
    }
    return bytes;
  }

  // Returns for each stage the peak bytes of computed values, including copies of values from other stages. Adds constants to `kept_`.
  std::vector<int64_t> PeakLiveBytes() {
    const size_t values = bytes_.size(), nodes = graph_.nodes.size();
    ++placement_;
    lives_.resize(values * At(num_stages_));
    std::vector<ValueId> shown(values);
    for (size_t id = 0; id < values; ++id) shown[id] = static_cast<ValueId>(id);
    std::vector<Life*> touched;
    std::vector<int64_t> begins(nodes, 0), ends(nodes, 0);  // bytes of values that a node is the first, or the last, to touch
    std::vector<int64_t> touched_bytes;
    for (size_t i = 0; i < nodes; ++i) {
      const Node& node = graph_.nodes[i];
      const auto life = [&](ValueId id) -> Life& { return lives_[At(node.device) * values + At(id)]; };
      const auto touch = [&](ValueId id) {
        const ValueId source = shown[At(id)];
        Life& found = life(source);
        if (found.placement != placement_) {
          found.placement = placement_;
          touched.push_back(&found);
          touched_bytes.push_back(bytes_[At(source)] / copies_);
          begins[i] += touched_bytes.back();
        }
        found.last = static_cast<int>(i);
      };
      for (ValueId id : node.inputs) {
        if (id == kNoValue) continue;
        const Value& value = graph_.value(id);
        if (value.role == Role::kConst) {
          Life& found = life(id);
          if (found.constant != placement_) kept_[At(node.device)] += bytes_[At(id)];
          found.constant = placement_;
        } else if (value.role != Role::kInput && !(IsKept(value) && home_[At(id)] == node.device)) {
          touch(id);
        }
      }
      if (IsView(node)) {
        shown[At(node.outputs[0])] = shown[At(node.inputs[0])];
        continue;
      }
      for (ValueId id : node.outputs) {
        // The next value of a state occupies the same memory as the old one.
        if (id != kNoValue && graph_.value(id).next_of == kNoValue) touch(id);
      }
    }
    for (size_t i = 0; i < touched.size(); ++i) ends[At(touched[i]->last)] += touched_bytes[i];
    std::vector<int64_t> live(At(num_stages_), 0), most(At(num_stages_), 0);
    for (size_t i = 0; i < nodes; ++i) {
      const size_t stage = At(graph_.nodes[i].device);
      live[stage] += begins[i];
      most[stage] = std::max(most[stage], live[stage]);
      live[stage] -= ends[i];
    }
    return most;
  }

  const Graph& graph_;
  const NodePlacer& placer_;
  const int num_stages_, copies_;
  const DeviceCosts costs_;
  std::vector<int64_t> bytes_;   // by value
  std::vector<double> seconds_;  // by node

  // Of the current placement.
  std::vector<int> home_;      // by value: the stage that produces or keeps it; -1: each has it
  std::vector<int64_t> kept_;  // bytes of states and constants, by stage
  std::vector<Life> lives_;    // by stage and value; those of other placements are void
  int placement_ = 0;
};

// Searches for the cuts of a given number of stages: moves each cut in turn to its best position, with the others fixed.
class CutSearch {
 public:
  CutSearch(Graph& graph, const Recipe& recipe, int64_t limit, int count)
      : graph_(graph),
        limit_(limit),
        count_(count),
        placer_(graph, no_rules_),
        estimator_(graph, placer_, count, recipe.devices / count, recipe) {
    const DeviceCosts costs = DefaultCosts(recipe.device);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      const int name = placer_.name_of_node()[i];
      if (node.phase != Phase::kForward || name < 0) continue;
      if (!names_.empty() && names_.back() == name) continue;
      names_.push_back(name);
      work_.push_back((work_.empty() ? 0 : work_.back()) + SecondsOf(CostOf(graph, node), recipe.threads, costs));
    }
  }

  // Whether there are at least as many names as stages.
  bool possible() const { return names_.size() >= static_cast<size_t>(count_); }

  std::pair<Stages, PlacementEstimate> Run() {
    std::vector<size_t> cuts;  // the first name of each stage except stage 0
    for (int s = 1; s < count_; ++s) {
      const double before = work_.back() * s / count_;
      const auto at = static_cast<size_t>(std::lower_bound(work_.begin(), work_.end(), before) - work_.begin());
      const size_t least = cuts.empty() ? 1 : cuts.back() + 1, most = names_.size() - static_cast<size_t>(count_ - s);
      cuts.push_back(std::clamp(at, least, most));
    }
    PlacementEstimate best = Try(cuts);
    // A cut needs no further search until another one has moved.
    std::vector<bool> stale(cuts.size(), true);
    for (int round = 0, better = 1; round < kMaxRounds && better > 0; ++round) {
      better = 0;
      for (size_t k = 0; k < cuts.size(); ++k) {
        if (!stale[k]) continue;
        stale[k] = false;
        const size_t first = k == 0 ? 1 : cuts[k - 1] + 1, end = k + 1 == cuts.size() ? names_.size() : cuts[k + 1];
        const size_t step = std::max<size_t>(1, (end - first) / kMaxPlaces);
        for (size_t at = first; at < end; at += step) {
          std::vector<size_t> other = cuts;
          other[k] = at;
          const PlacementEstimate tried = Try(other);
          if (!tried.better_than(best)) continue;
          best = tried;
          cuts = other;
          better = 1;
          for (size_t j = 0; j < cuts.size(); ++j) stale[j] = stale[j] || j != k;
        }
      }
    }
    return {Placed(cuts), best};
  }

 private:
  // By name of the placer. A name that occurs in several stages is on the first of them.
  std::vector<int> StageOfNames(const std::vector<size_t>& cuts) const {
    std::vector<int> stages(placer_.names().size(), NodePlacer::kUnplaced);
    int stage = 0;
    for (size_t i = 0; i < names_.size(); ++i) {
      while (stage < static_cast<int>(cuts.size()) && cuts[static_cast<size_t>(stage)] <= i) ++stage;
      int& of_name = stages[static_cast<size_t>(names_[i])];
      if (of_name == NodePlacer::kUnplaced) of_name = stage;
    }
    return stages;
  }

  PlacementEstimate Try(const std::vector<size_t>& cuts) {
    placer_.Place(StageOfNames(cuts));
    return estimator_.Run(limit_);
  }

  Stages Placed(const std::vector<size_t>& cuts) {
    Stages stages{.count = count_};
    const std::vector<int> of_name = StageOfNames(cuts);
    for (size_t i = 0; i < of_name.size(); ++i) {
      if (of_name[i] != NodePlacer::kUnplaced) stages.of_node.emplace(placer_.names()[i], of_name[i]);
    }
    for (Node& node : graph_.nodes) node.device = NodePlacer::kUnplaced;
    placer_.Place(stages);
    return stages;
  }

  Graph& graph_;
  const int64_t limit_;
  const int count_;
  const std::vector<PlaceRule> no_rules_;
  NodePlacer placer_;
  Estimator estimator_;
  std::vector<int> names_;    // of the model's nodes, in order, as positions in the placer's
  std::vector<double> work_;  // seconds of the forward pass up to and including each name
};

}  // namespace

Stages CutStages(Graph& graph, const Recipe& recipe, int64_t limit) {
  std::pair<Stages, PlacementEstimate> best;
  for (int count = 1; count <= std::min(recipe.devices, kMaxStages); ++count) {
    if (recipe.devices % count != 0) continue;
    CutSearch search(graph, recipe, limit, count);
    if (count > 1 && !search.possible()) continue;
    auto found = search.Run();
    if (count == 1 || found.second.better_than(best.second)) best = std::move(found);
  }
  return std::move(best.first);
}

}  // namespace gradloom
