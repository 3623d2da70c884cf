#include "compiler/passes/memory/recompute.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/cost/cost_model.h"
#include "compiler/passes/fusion/fuse_pointwise.h"
#include "compiler/passes/memory/forward_segments.h"
#include "compiler/passes/memory/remake_pointwise.h"
#include "compiler/passes/schedule/node_order.h"
#include "compiler/passes/schedule/refusals.h"

namespace gradloom {
namespace {

constexpr size_t kLongestChain = 16;
constexpr int kMaxTries = 4;  // to choose segments for more bytes, because those of the other values were fewer than expected

// What is recomputed.
struct Selection {
  std::vector<bool> saved;   // by value id: read by the backward pass, or by what is recomputed, and not recomputed itself
  std::vector<bool> remade;  // by value id: made again with its segment; empty: none
  std::map<ValueId, std::vector<int>> chosen;  // the nodes that recompute a value by itself
  std::set<ValueId> anchors;                   // values that something is recomputed from
  Recomputed sum;
};

class Recomputer {
 public:
  Recomputer(Graph& graph, DeviceKind device, int threads)
      : graph_(graph),
        costs_(DefaultCosts(device)),
        threads_(threads),
        uses_(graph),
        checked_(CheckedValues(graph)),
        originals_(graph.nodes),
        ran_again_(graph.nodes.size()) {
    s_.saved.assign(static_cast<size_t>(graph.num_values()), false);
    const std::vector<bool> read = ReadByBackward();
    for (size_t id = 0; id < s_.saved.size(); ++id) {
      // The gradient of a loss may come from the forward pass, but the backward pass begins with it.
      const bool gradient = graph.value(static_cast<ValueId>(id)).role == Role::kGradient;
      s_.saved[id] = !gradient && IsForward(static_cast<ValueId>(id)) && read[id];
    }
  }

  Recomputed Run(const RecomputeGoal& goal) {
    const Selection nothing = s_;
    const std::vector<RecomputeCandidate> candidates = Candidates();
    const std::vector<RecomputeCandidate> chosen = ChooseValues(candidates, goal.bytes);
    if (s_.sum.saving < goal.bytes && goal.segments) ChooseSegments(nothing, candidates, chosen, goal.bytes);
    Rewrite();
    return s_.sum;
  }

 private:
  // Chooses values that are recomputed each by itself until they have the bytes, and returns them.
  std::vector<RecomputeCandidate> ChooseValues(const std::vector<RecomputeCandidate>& candidates, int64_t wanted_bytes) {
    std::vector<RecomputeCandidate> list;
    int64_t bytes = 0;
    for (const RecomputeCandidate& candidate : candidates) {
      if (bytes >= wanted_bytes) break;
      // Chosen values are recomputed from it, so it must stay.
      if (s_.anchors.contains(candidate.value) || IsRemade(candidate.value)) continue;
      std::vector<int> chain;
      std::set<ValueId> anchors;
      if (!ChainOf(candidate.value, chain, anchors)) continue;
      s_.anchors.insert(anchors.begin(), anchors.end());
      s_.chosen.emplace(candidate.value, std::move(chain));
      list.push_back(candidate);
      bytes += candidate.bytes;
      Count(1, candidate.bytes, candidate.bytes, candidate.seconds);
    }
    return list;
  }

  // Chooses segments, and values outside of them, instead of values alone, if that saves more. `nothing`: the selection before anything was
  // chosen; `alone`: the values that were chosen alone.
  void ChooseSegments(const Selection& nothing, const std::vector<RecomputeCandidate>& candidates,
                      const std::vector<RecomputeCandidate>& alone, int64_t wanted_bytes) {
    const ForwardSegments segments(graph_, nothing.saved, checked_,
                                   [&](const std::vector<int>& nodes) { return SecondsOfChain(kNoValue, nodes, &nothing.saved); });
    Selection best = s_;
    int64_t wanted = wanted_bytes;
    for (int round = 0; round < kMaxTries && best.sum.saving < wanted_bytes; ++round) {
      const SegmentChoice choice = segments.Choose(wanted, alone);
      if (choice.values == 0) break;
      s_ = nothing;
      s_.remade = choice.remade;
      for (size_t id = 0; id < s_.saved.size(); ++id) {
        s_.saved[id] = (s_.saved[id] || choice.kept[id]) && !choice.remade[id];
        if (choice.kept[id]) s_.anchors.insert(static_cast<ValueId>(id));
      }
      Count(choice.values, choice.bytes, choice.saving, choice.seconds);
      ChooseValues(candidates, wanted_bytes - choice.saving);
      if (s_.sum.saving > best.sum.saving) best = s_;
      if (!choice.enough) break;
      // Of the values that were expected to be recomputed besides, some are computed from what the segments no longer keep.
      wanted += wanted_bytes - s_.sum.saving;
    }
    s_ = best;
  }

  void Count(int values, int64_t bytes, int64_t saving, double seconds) {
    s_.sum.values += values;
    s_.sum.bytes += bytes;
    s_.sum.saving += saving;
    s_.sum.seconds += seconds;
  }

  bool IsRemade(ValueId id) const { return !s_.remade.empty() && s_.remade[static_cast<size_t>(id)]; }

  const Node* ProducerOf(ValueId id) const { return uses_.ProducingNode(graph_, id); }

  bool IsForward(ValueId id) const {
    const Node* producer = ProducerOf(id);
    return producer != nullptr && producer->phase == Phase::kForward && graph_.value(id).next_of == kNoValue;
  }

  // Returns, by value id, whether the backward pass reads the value itself or a view of it from the forward pass.
  std::vector<bool> ReadByBackward() const {
    std::vector<bool> read(static_cast<size_t>(graph_.num_values()));
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      const bool view = node.phase == Phase::kForward && IsView(node) && read[static_cast<size_t>(node.outputs[0])];
      if (view || node.phase == Phase::kBackward) ForEachUse(node, [&](ValueId id) { read[static_cast<size_t>(id)] = true; });
    }
    return read;
  }

  bool IsFetched(ValueId id) const { return std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end(); }

  // Appends the nodes that recompute the value from values that stay, which are added to `anchors`. Returns false if that is impossible or
  // takes more than kLongestChain nodes. `depth`: how many nodes need this one.
  bool ChainOf(ValueId id, std::vector<int>& chain, std::set<ValueId>& anchors, size_t depth = 0) const {
    const int at = uses_.ProducerOf(id);
    if (at < 0) return true;
    if (std::find(chain.begin(), chain.end(), at) != chain.end()) return true;
    const Node& node = graph_.nodes[static_cast<size_t>(at)];
    if (node.phase != Phase::kForward || !CanRecompute(node, checked_) || depth >= kLongestChain) return false;
    bool possible = true;
    ForEachUse(node, [&](ValueId input) {
      if (!possible || ProducerOf(input) == nullptr) return;
      if (s_.saved[static_cast<size_t>(input)] && !s_.chosen.contains(input) && !IsView(*ProducerOf(input))) {
        anchors.insert(input);
      } else {
        possible = !s_.chosen.contains(input) && !IsRemade(input) && ChainOf(input, chain, anchors, depth + 1);
      }
    });
    if (!possible || chain.size() >= kLongestChain) return false;
    chain.push_back(at);
    return true;
  }

  // Returns the values that may be recomputed, those first whose bytes cost the least time.
  std::vector<RecomputeCandidate> Candidates() const {
    std::vector<RecomputeCandidate> candidates;
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      if (!s_.saved[static_cast<size_t>(id)] || IsView(*ProducerOf(id)) || IsFetched(id)) continue;
      const int64_t bytes = graph_.value(id).bytes();
      std::vector<int> chain;
      std::set<ValueId> anchors;
      if (bytes < kMinRecomputedBytes || !ChainOf(id, chain, anchors)) continue;
      candidates.push_back({.value = id, .bytes = bytes, .seconds = SecondsOfChain(id, chain)});
    }
    std::stable_sort(candidates.begin(), candidates.end(), [](const RecomputeCandidate& a, const RecomputeCandidate& b) {
      return static_cast<double>(a.bytes) * b.seconds > static_cast<double>(b.bytes) * a.seconds;
    });
    return candidates;
  }

  // The time of the nodes that recompute a value, or several if `result` is none: those in `saved`, by value id. Fusion makes one launch of
  // connected pointwise ones, which reads and writes only what others make and read.
  double SecondsOfChain(ValueId result, const std::vector<int>& chain, const std::vector<bool>* saved = nullptr) const {
    std::set<ValueId> written{result};  // by the launches of pointwise nodes
    for (int at : chain) {
      const Node& node = graph_.nodes[static_cast<size_t>(at)];
      if (!CanFuse(graph_, node)) ForEachUse(node, [&](ValueId id) { written.insert(id); });
      for (ValueId id : node.outputs) {
        if (saved != nullptr && id != kNoValue && (*saved)[static_cast<size_t>(id)]) written.insert(id);
      }
    }
    std::map<ValueId, Cost> open;  // the work of the launch that a pointwise result, which is not written, is a part of
    double seconds = 0;
    for (int at : chain) {
      const Node& node = graph_.nodes[static_cast<size_t>(at)];
      if (IsView(node)) continue;
      Cost cost = CostOf(graph_, node);
      if (CanFuse(graph_, node)) {
        cost.bytes = 0;
        ForEachUse(node, [&](ValueId id) {
          const auto part = open.find(id);
          if (part == open.end()) {
            cost.bytes += static_cast<double>(graph_.value(id).bytes());
          } else {
            cost.flops += std::exchange(part->second.flops, 0);
            cost.bytes += std::exchange(part->second.bytes, 0);
          }
        });
        if (!written.contains(node.outputs[0])) {
          open.emplace(node.outputs[0], cost);
          continue;
        }
        cost.bytes += static_cast<double>(graph_.value(node.outputs[0]).bytes());
      }
      seconds += SecondsOf(cost, threads_, costs_);
    }
    return seconds;
  }

  // Inserts each chain before the first backward reader of its value, and makes backward readers use the new value.
  void Rewrite() {
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    std::map<ValueId, ValueId> again;  // the value that the backward pass reads, by chosen value or view of one
    for (Node& node : nodes) {
      if (node.phase == Phase::kBackward) {
        for (ValueId& id : node.inputs) {
          if (id != kNoValue) id = Again(id, again);
        }
      }
      graph_.AddNode(std::move(node));
    }
  }

  // Returns what the backward pass reads instead of the value: the recomputed one, or the same view of a recomputed one.
  ValueId Again(ValueId id, std::map<ValueId, ValueId>& again) {
    std::vector<ValueId> views;  // of those that follow: not a recursion, as a file may have any number of views after each other
    while (!again.contains(id)) {
      if (IsRemade(id)) {
        RunAgain(uses_.ProducerOf(id), again);
        break;
      }
      if (const auto chosen = s_.chosen.find(id); chosen != s_.chosen.end()) {
        std::map<ValueId, ValueId> own;
        for (int node : chosen->second) RemakeNode(graph_, originals_[static_cast<size_t>(node)], own);
        again.emplace(id, own.at(id));
        break;
      }
      const int at = uses_.ProducerOf(id);
      if (at < 0 || !s_.saved[static_cast<size_t>(id)] || !IsView(originals_[static_cast<size_t>(at)])) {
        again.emplace(id, id);
        break;
      }
      views.push_back(id);
      id = originals_[static_cast<size_t>(at)].inputs[0];
    }
    ValueId made = again.at(id);
    for (; !views.empty(); views.pop_back()) {
      const ValueId view = views.back();
      if (made != id) {
        std::map<ValueId, ValueId> own{{id, made}};
        RemakeNode(graph_, originals_[static_cast<size_t>(uses_.ProducerOf(view))], own);
        made = own.at(view);
      } else {
        made = view;
      }
      id = view;
      again.emplace(id, made);
    }
    return made;
  }

  // Inserts a node of a segment that runs again, and before it those whose results it needs, which have not been inserted yet.
  void RunAgain(int node, std::map<ValueId, ValueId>& again) {
    std::vector<int> wanted{node}, nodes;
    while (!wanted.empty()) {
      const int at = wanted.back();
      wanted.pop_back();
      if (ran_again_[static_cast<size_t>(at)]) continue;
      ran_again_[static_cast<size_t>(at)] = true;
      nodes.push_back(at);
      ForEachUse(originals_[static_cast<size_t>(at)], [&](ValueId id) {
        if (IsRemade(id)) wanted.push_back(uses_.ProducerOf(id));
      });
    }
    std::sort(nodes.begin(), nodes.end());
    for (int at : nodes) {
      const Node& original = originals_[static_cast<size_t>(at)];
      RemakeNode(graph_, original, again);
      // What is kept is read where it is.
      for (ValueId id : original.outputs) {
        if (id != kNoValue && !IsRemade(id)) again[id] = id;
      }
    }
  }

  Graph& graph_;
  const DeviceCosts costs_;
  const int threads_;
  const Uses uses_;
  const std::vector<bool> checked_;
  const std::vector<Node> originals_;  // by position; copies, since nodes of the graph move
  std::vector<bool> ran_again_;        // by position
  Selection s_;
};

}  // namespace

Recomputed Recompute(Graph& graph, const RecomputeGoal& goal, DeviceKind device, int threads) {
  return Recomputer(graph, device, threads).Run(goal);
}

}  // namespace gradloom
