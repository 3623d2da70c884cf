#include "compiler/passes/cut_stages.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/cost/cost_model.h"
#include "compiler/passes/node_order.h"

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

// Estimates the placement of a graph over the whole batch, with loss, gradients and updates, whose nodes are placed on `stages` devices;
// `copies` of the model share the batch.
class Estimator {
 public:
  Estimator(const Graph& graph, const Stages& stages, int copies, const Recipe& recipe)
      : graph_(graph),
        stages_(stages),
        copies_(copies),
        recipe_(recipe),
        costs_(DefaultCosts(recipe.device)),
        home_(static_cast<size_t>(graph.num_values()), -1),
        kept_(static_cast<size_t>(stages.count), 0) {
    for (const Value& value : graph.values()) {
      if (!IsKept(value)) continue;
      home_[At(value.id)] = stages.of_state.at(value.name);
      kept_[At(home_[At(value.id)])] += BytesOf(value);
    }
    for (const Node& node : graph.nodes) {
      for (ValueId id : node.outputs) {
        if (id != kNoValue) home_[At(id)] = node.device;
      }
    }
  }

  // `limit`: bytes of a device; 0: any.
  PlacementEstimate Run(int64_t limit) {
    PlacementEstimate made{.seconds = Seconds()};
    const std::vector<int64_t> live = PeakLiveBytes();
    for (int s = 0; s < stages_.count; ++s) {
      const int64_t bytes = kept_[At(s)] + live[At(s)];
      made.bytes = std::max(made.bytes, bytes);
      if (limit > 0) made.too_much = std::max(made.too_much, bytes - limit);
    }
    return made;
  }

 private:
  static size_t At(int i) { return static_cast<size_t>(i); }

  // Replicas share the work of nodes that depend on samples; each performs all updates.
  double ShareOf(const Node& node) const { return node.phase == Phase::kUpdate ? 1.0 : 1.0 / copies_; }

  // Estimates the step time: each stage runs its nodes one after the other, in list order.
  double Seconds() const {
    std::vector<double> free(At(stages_.count), 0), ready(home_.size(), 0);
    std::set<std::pair<ValueId, int>> sent;
    for (const Node& node : graph_.nodes) {
      if (IsView(node)) {
        ready[At(node.outputs[0])] = ready[At(node.inputs[0])];
        continue;
      }
      double& at = free[At(node.device)];
      ForEachUse(node, [&](ValueId id) {
        double there = ready[At(id)];
        if (home_[At(id)] >= 0 && home_[At(id)] != node.device) {
          const double bytes = static_cast<double>(BytesOf(graph_.value(id))) * (IsKept(graph_.value(id)) ? 1.0 : 1.0 / copies_);
          there += costs_.collective_seconds + bytes / costs_.link_bytes_per_second;
        }
        at = std::max(at, there);
      });
      at += ShareOf(node) * SecondsOf(CostOf(graph_, node), recipe_.threads, costs_);
      for (ValueId id : node.outputs) {
        if (id != kNoValue) ready[At(id)] = at;
      }
    }
    if (copies_ > 1) {
      const std::vector<int64_t> bytes = ParameterBytes();
      for (int s = 0; s < stages_.count; ++s)
        free[At(s)] += costs_.collective_seconds + 2 * static_cast<double>(bytes[At(s)]) / costs_.link_bytes_per_second;
    }
    return *std::max_element(free.begin(), free.end());
  }

  // By stage.
  std::vector<int64_t> ParameterBytes() const {
    std::vector<int64_t> bytes(At(stages_.count), 0);
    for (const Value& value : graph_.values()) {
      if (value.role == Role::kParam && IsKept(value)) bytes[At(home_[At(value.id)])] += BytesOf(value);
    }
    return bytes;
  }

  // Returns for each stage the peak bytes of computed values, including copies of values from other stages.
  std::vector<int64_t> PeakLiveBytes() {
    std::vector<ValueId> shown(home_.size());
    for (size_t id = 0; id < shown.size(); ++id) shown[id] = static_cast<ValueId>(id);
    std::map<std::pair<int, ValueId>, std::pair<size_t, size_t>> lives;  // first and last node, by stage and value
    std::vector<std::set<ValueId>> constants(At(stages_.count));
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      const auto touch = [&](ValueId id) {
        const auto [at, fresh] = lives.emplace(std::pair(node.device, shown[At(id)]), std::pair(i, i));
        if (!fresh) at->second.second = i;
      };
      ForEachUse(node, [&](ValueId id) {
        const Value& value = graph_.value(id);
        if (value.role == Role::kConst) {
          if (constants[At(node.device)].insert(id).second) kept_[At(node.device)] += BytesOf(value);
        } else if (value.role != Role::kInput && !(IsKept(value) && home_[At(id)] == node.device)) {
          touch(id);
        }
      });
      if (IsView(node)) {
        shown[At(node.outputs[0])] = shown[At(node.inputs[0])];
        continue;
      }
      for (ValueId id : node.outputs) {
        // The next value of a state occupies the same memory as the old one.
        if (id != kNoValue && graph_.value(id).next_of == kNoValue) touch(id);
      }
    }
    std::vector<std::tuple<size_t, int, int64_t>> changes;  // node, stage, change in bytes
    for (const auto& [key, life] : lives) {
      const int64_t bytes = BytesOf(graph_.value(key.second)) / copies_;
      changes.emplace_back(2 * life.first, key.first, bytes);
      changes.emplace_back(2 * life.second + 1, key.first, -bytes);
    }
    std::sort(changes.begin(), changes.end());
    std::vector<int64_t> live(At(stages_.count), 0), most(At(stages_.count), 0);
    for (const auto& [when, stage, bytes] : changes) {
      live[At(stage)] += bytes;
      most[At(stage)] = std::max(most[At(stage)], live[At(stage)]);
    }
    return most;
  }

  const Graph& graph_;
  const Stages& stages_;
  const int copies_;
  const Recipe& recipe_;
  const DeviceCosts costs_;
  std::vector<int> home_;      // by value id: the stage that produces or keeps it; -1: each has it
  std::vector<int64_t> kept_;  // bytes of states and constants, by stage
};

// Searches for the cuts of a given number of stages: moves each cut in turn to its best position, with the others fixed.
class CutSearch {
 public:
  CutSearch(Graph& graph, const Recipe& recipe, int64_t limit, int count)
      : graph_(graph), recipe_(recipe), limit_(limit), count_(count), copies_(recipe.devices / count) {
    const DeviceCosts costs = DefaultCosts(recipe.device);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.phase != Phase::kForward || node.origin.empty()) continue;
      if (!names_.empty() && names_.back() == node.origin) continue;
      names_.push_back(node.origin);
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
    auto best = Try(cuts);
    for (int round = 0, better = 1; round < kMaxRounds && better > 0; ++round) {
      better = 0;
      for (size_t k = 0; k < cuts.size(); ++k) {
        const size_t first = k == 0 ? 1 : cuts[k - 1] + 1, end = k + 1 == cuts.size() ? names_.size() : cuts[k + 1];
        const size_t step = std::max<size_t>(1, (end - first) / kMaxPlaces);
        for (size_t at = first; at < end; at += step) {
          std::vector<size_t> other = cuts;
          other[k] = at;
          auto tried = Try(other);
          if (!tried.second.better_than(best.second)) continue;
          best = std::move(tried);
          cuts = other;
          better = 1;
        }
      }
    }
    return best;
  }

 private:
  std::pair<Stages, PlacementEstimate> Try(const std::vector<size_t>& cuts) {
    Stages stages{.count = count_};
    int stage = 0;
    for (size_t i = 0; i < names_.size(); ++i) {
      while (stage < static_cast<int>(cuts.size()) && cuts[static_cast<size_t>(stage)] <= i) ++stage;
      stages.of_node.emplace(names_[i], stage);
    }
    for (Node& node : graph_.nodes) node.device = -1;
    PlaceDevices(graph_, {}, stages);
    const PlacementEstimate estimate = Estimator(graph_, stages, copies_, recipe_).Run(limit_);
    return {std::move(stages), estimate};
  }

  Graph& graph_;
  const Recipe& recipe_;
  const int64_t limit_;
  const int count_, copies_;
  std::vector<std::string> names_;  // of the model's nodes, in order
  std::vector<double> work_;        // seconds of the forward pass up to and including each name
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
