#include "compiler/passes/devices/cut_stages.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/cost/cost_model.h"
#include "compiler/passes/devices/micro_batches.h"
#include "compiler/passes/devices/node_placer.h"
#include "compiler/passes/schedule/node_order.h"

namespace gradloom {
namespace {

// The largest number of nodes before which cuts are tried; they divide the work evenly.
constexpr size_t kMaxPlaces = 48;
constexpr int kMaxRounds = 4;
constexpr int kMaxStages = 64;

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
// `copies` of the model share the batch, each with this many micro-batches. What does not depend on the placement is computed once, and
// kept by node or by value: a search asks for thousands of estimates.
class Estimator {
 public:
  Estimator(const Graph& graph, const NodePlacer& placer, int stages, int copies, int micro_batches, const Recipe& recipe)
      : graph_(graph),
        placer_(placer),
        num_stages_(stages),
        copies_(copies),
        micro_batches_(micro_batches),
        costs_(DefaultCosts(recipe.device)) {
    for (const Value& value : graph.values()) {
      const bool kept = IsKept(value);
      bytes_.push_back(value.bytes());
      kinds_.push_back(kept                         ? Kind::kKept
                       : value.role == Role::kConst ? Kind::kConstant
                       : value.role == Role::kInput ? Kind::kInput
                       : value.next_of != kNoValue  ? Kind::kNext
                                                    : Kind::kComputed);
      const double sent = static_cast<double>(bytes_.back()) * (kept ? 1.0 : 1.0 / copies);
      const int times = kept ? 1 : micro_batches;
      transfer_seconds_.push_back(times * costs_.collective_seconds + sent / costs_.link_bytes_per_second);
    }
    for (const Node& node : graph.nodes) {
      is_view_.push_back(IsView(node));
      // Replicas and micro-batches share the work of nodes that depend on samples; each replica performs all updates, once.
      const int times = node.phase == Phase::kUpdate ? 1 : micro_batches, parts = node.phase == Phase::kUpdate ? 1 : copies * micro_batches;
      Cost cost = CostOf(graph, node);
      cost.flops /= parts;
      cost.bytes /= parts;
      seconds_.push_back(IsView(node) ? 0 : times * SecondsOf(cost, recipe.threads, costs_));
    }
    // Each micro-batch after the first adds its gradients to those before.
    for (const Value& value : graph.values()) {
      const auto elements = static_cast<double>(value.shape.elements()), bytes = static_cast<double>(value.bytes());
      const bool added = value.role == Role::kParam && IsKept(value);
      sum_seconds_.push_back(added ? (micro_batches - 1) * SecondsOf({.flops = elements, .bytes = 3 * bytes}, recipe.threads, costs_) : 0);
    }
  }

  // Of the current placement. `limit`: bytes of a device; 0: any. The time of one that exceeds it by more than `most_too_much` is infinite.
  PlacementEstimate Run(int64_t limit, int64_t most_too_much) {
    FindHomes();
    PlacementEstimate made{.seconds = std::numeric_limits<double>::infinity()};
    const std::vector<int64_t> live = PeakLiveBytes();
    for (int s = 0; s < num_stages_; ++s) {
      const int64_t bytes = kept_[At(s)] + live[At(s)];
      made.bytes = std::max(made.bytes, bytes);
      if (limit > 0) made.too_much = std::max(made.too_much, bytes - limit);
    }
    if (made.too_much <= most_too_much) made.seconds = Seconds();
    return made;
  }

 private:
  enum class Kind : uint8_t { kKept, kConstant, kInput, kNext, kComputed };

  // A value on a stage.
  struct Life {
    int stage = 0;
    int other = 0;  // that of the same value on another stage; -1: none
    int last = 0;   // the last node that touches it
    int64_t bytes = 0;
  };

  static size_t At(int i) { return static_cast<size_t>(i); }

  void FindHomes() {
    home_.assign(bytes_.size(), -1);
    kept_.assign(At(num_stages_), 0);
    for (size_t id = 0; id < bytes_.size(); ++id) {
      if (kinds_[id] != Kind::kKept) continue;
      home_[id] = placer_.StageOf(static_cast<ValueId>(id));
      kept_[At(home_[id])] += bytes_[id];
    }
    for (size_t i = 0; i < seconds_.size(); ++i) {
      for (ValueId id : placer_.values().outputs(i)) home_[At(id)] = placer_.devices()[i];
    }
  }

  // Estimates the step time: each stage runs its nodes one after the other, in list order. With several micro-batches, the stage that works
  // longest waits for the others only until the first of these arrives, and while the last one leaves.
  double Seconds() {
    std::vector<double> free(At(num_stages_), 0), busy(At(num_stages_), 0);
    ready_.assign(home_.size(), 0);
    for (size_t i = 0; i < seconds_.size(); ++i) {
      const std::span<const ValueId> inputs = placer_.values().inputs(i), outputs = placer_.values().outputs(i);
      if (is_view_[i]) {
        ready_[At(outputs[0])] = ready_[At(inputs[0])];
        continue;
      }
      const int stage = placer_.devices()[i];
      double& at = free[At(stage)];
      for (ValueId id : inputs) {
        double there = ready_[At(id)];
        if (home_[At(id)] >= 0 && home_[At(id)] != stage) there += transfer_seconds_[At(id)];
        at = std::max(at, there);
      }
      at += seconds_[i];
      busy[At(stage)] += seconds_[i];
      for (ValueId id : outputs) ready_[At(id)] = at;
    }
    const double longest = *std::max_element(busy.begin(), busy.end());
    for (double& end : free) end = std::min(end, longest + std::max(end - longest, 0.0) / micro_batches_);
    for (size_t id = 0; id < home_.size(); ++id) {
      if (sum_seconds_[id] > 0) free[At(home_[id])] += sum_seconds_[id];
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

  // The life of a value on a stage, of those that `first` leads to; a new one for its first node there.
  Life& LifeOf(int& first, int stage, bool& begins) {
    for (int at = first; at >= 0; at = lives_[At(at)].other) {
      if (lives_[At(at)].stage == stage) return lives_[At(at)];
    }
    begins = true;
    lives_.push_back({.stage = stage, .other = first});
    first = static_cast<int>(lives_.size()) - 1;
    return lives_.back();
  }

  // Returns for each stage the peak bytes of computed values, including copies of values from other stages. Adds constants to `kept_`.
  std::vector<int64_t> PeakLiveBytes() {
    const size_t values = bytes_.size(), nodes = seconds_.size();
    lives_.clear();
    life_.assign(values, -1);
    constant_.assign(values, -1);
    shown_.resize(values);
    for (size_t id = 0; id < values; ++id) shown_[id] = static_cast<ValueId>(id);
    begins_.assign(nodes, 0);
    ends_.assign(nodes, 0);
    for (size_t i = 0; i < nodes; ++i) {
      const int stage = placer_.devices()[i];
      const auto touch = [&](ValueId id) {
        const size_t source = At(shown_[At(id)]);
        bool begins = false;
        Life& life = LifeOf(life_[source], stage, begins);
        if (begins) {
          life.bytes = bytes_[source] / copies_;
          begins_[i] += life.bytes;
        }
        life.last = static_cast<int>(i);
      };
      for (ValueId id : placer_.values().inputs(i)) {
        const Kind kind = kinds_[At(id)];
        if (kind == Kind::kConstant) {
          bool begins = false;
          LifeOf(constant_[At(id)], stage, begins);
          if (begins) kept_[At(stage)] += bytes_[At(id)];
        } else if (kind != Kind::kInput && !(kind == Kind::kKept && home_[At(id)] == stage)) {
          touch(id);
        }
      }
      const std::span<const ValueId> outputs = placer_.values().outputs(i);
      if (is_view_[i]) {
        shown_[At(outputs[0])] = shown_[At(placer_.values().inputs(i)[0])];
        continue;
      }
      for (ValueId id : outputs) {
        // The next value of a state occupies the same memory as the old one.
        if (kinds_[At(id)] != Kind::kNext) touch(id);
      }
    }
    // Those of constants have no bytes.
    for (const Life& life : lives_) ends_[At(life.last)] += life.bytes;
    std::vector<int64_t> live(At(num_stages_), 0), most(At(num_stages_), 0);
    for (size_t i = 0; i < nodes; ++i) {
      const size_t stage = At(placer_.devices()[i]);
      live[stage] += begins_[i];
      most[stage] = std::max(most[stage], live[stage]);
      live[stage] -= ends_[i];
    }
    return most;
  }

  const Graph& graph_;
  const NodePlacer& placer_;
  const int num_stages_, copies_, micro_batches_;
  const DeviceCosts costs_;
  // By value.
  std::vector<int64_t> bytes_;
  std::vector<Kind> kinds_;
  std::vector<double> transfer_seconds_;
  std::vector<double> sum_seconds_;  // of a parameter: to add the gradients of micro-batches
  // By node.
  std::vector<double> seconds_;
  std::vector<bool> is_view_;

  // Of the current placement.
  std::vector<int> home_;               // by value: the stage that produces or keeps it; -1: each has it
  std::vector<int64_t> kept_;           // bytes of states and constants, by stage
  std::vector<double> ready_;           // by value
  std::vector<Life> lives_;             // of values and of constants, as stages touch them first
  std::vector<int> life_, constant_;    // by value: one of them; -1: none
  std::vector<ValueId> shown_;          // by value: what it is a view of
  std::vector<int64_t> begins_, ends_;  // by node: bytes of values that it is the first, or the last, to touch
};

// Searches for the cuts of a given number of stages: moves each cut in turn to its best position, with the others fixed.
class CutSearch {
 public:
  CutSearch(Graph& graph, const Recipe& recipe, int64_t batch, int64_t limit, int count)
      : graph_(graph),
        limit_(limit),
        count_(count),
        placer_(graph, no_rules_),
        estimator_(graph, placer_, count, recipe.devices / count,
                   count == 1 ? 1 : MicroBatchesOf(batch, recipe.devices / count, count, recipe.pipeline), recipe) {
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
    PlacementEstimate best = Try(cuts, std::numeric_limits<int64_t>::max());
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
          const PlacementEstimate tried = Try(other, best.too_much);
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

  // `most_too_much`: see Estimator.
  PlacementEstimate Try(const std::vector<size_t>& cuts, int64_t most_too_much) {
    placer_.Place(StageOfNames(cuts));
    return estimator_.Run(limit_, most_too_much);
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

Stages CutStages(Graph& graph, const Recipe& recipe, int64_t batch, int64_t limit) {
  std::pair<Stages, PlacementEstimate> best;
  for (int count = 1; count <= std::min(recipe.devices, kMaxStages); ++count) {
    if (recipe.devices % count != 0) continue;
    CutSearch search(graph, recipe, batch, limit, count);
    if (count > 1 && !search.possible()) continue;
    auto found = search.Run();
    if (count == 1 || found.second.better_than(best.second)) best = std::move(found);
  }
  return std::move(best.first);
}

}  // namespace gradloom
