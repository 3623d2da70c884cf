#include "compiler/passes/recompute.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/cost/cost_model.h"
#include "compiler/ops/op.h"
#include "compiler/passes/fuse_pointwise.h"
#include "compiler/passes/node_order.h"
#include "compiler/passes/remake_pointwise.h"

namespace gradloom {
namespace {

constexpr int64_t kMinBytes = 1 << 10;  // smaller values are not worth a launch
constexpr size_t kLongestChain = 16;

// A value that could be recomputed, its bytes, and the time that recomputing it takes.
struct Candidate {
  ValueId value = kNoValue;
  int64_t bytes = 0;
  double seconds = 0;
};

class Recomputer {
 public:
  Recomputer(Graph& graph, DeviceKind device, int threads)
      : graph_(graph),
        costs_(DefaultCosts(device)),
        threads_(threads),
        uses_(graph),
        saved_(static_cast<size_t>(graph.num_values())),
        originals_(graph.nodes) {
    const std::vector<bool> read = ReadByBackward();
    for (size_t id = 0; id < saved_.size(); ++id) {
      // The gradient of a loss may come from the forward pass, but the backward pass begins with it.
      const bool gradient = graph.value(static_cast<ValueId>(id)).role == Role::kGradient;
      saved_[id] = !gradient && IsForward(static_cast<ValueId>(id)) && read[id];
    }
  }

  Recomputed Run(int64_t wanted_bytes) {
    Recomputed made;
    std::vector<Candidate> candidates = Candidates();
    std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return static_cast<double>(a.bytes) * b.seconds > static_cast<double>(b.bytes) * a.seconds;
    });
    for (const Candidate& candidate : candidates) {
      if (made.bytes >= wanted_bytes) break;
      // Chosen values are recomputed from it, so it must stay.
      if (anchors_.contains(candidate.value)) continue;
      std::vector<int> chain;
      std::set<ValueId> anchors;
      if (!ChainOf(candidate.value, chain, anchors)) continue;
      anchors_.insert(anchors.begin(), anchors.end());
      chosen_.emplace(candidate.value, std::move(chain));
      ++made.values;
      made.bytes += candidate.bytes;
      made.seconds += candidate.seconds;
    }
    Rewrite();
    return made;
  }

 private:
  const Node* ProducerOf(ValueId id) const {
    const int at = uses_.producer[static_cast<size_t>(id)];
    return at < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(at)];
  }

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

  static bool CanRecompute(const Node& node) {
    const Op* op = FindOp(node.domain, node.op);
    return op != nullptr && !op->has(kCollective) && !op->has(kUpdate) && node.regions.empty();
  }

  // Appends the nodes that recompute the value from values that stay, which are added to `anchors`. Returns false if that is impossible or
  // takes more than kLongestChain nodes. `depth`: how many nodes need this one.
  bool ChainOf(ValueId id, std::vector<int>& chain, std::set<ValueId>& anchors, size_t depth = 0) const {
    const int at = uses_.producer[static_cast<size_t>(id)];
    if (at < 0) return true;
    if (std::find(chain.begin(), chain.end(), at) != chain.end()) return true;
    const Node& node = graph_.nodes[static_cast<size_t>(at)];
    if (node.phase != Phase::kForward || !CanRecompute(node) || depth >= kLongestChain) return false;
    bool possible = true;
    ForEachUse(node, [&](ValueId input) {
      if (!possible || ProducerOf(input) == nullptr) return;
      if (saved_[static_cast<size_t>(input)] && !chosen_.contains(input) && !IsView(*ProducerOf(input))) {
        anchors.insert(input);
      } else {
        possible = !chosen_.contains(input) && ChainOf(input, chain, anchors, depth + 1);
      }
    });
    if (!possible || chain.size() >= kLongestChain) return false;
    chain.push_back(at);
    return true;
  }

  std::vector<Candidate> Candidates() const {
    std::vector<Candidate> candidates;
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      if (!saved_[static_cast<size_t>(id)] || IsView(*ProducerOf(id)) || IsFetched(id)) continue;
      const int64_t bytes = BytesOf(id);
      std::vector<int> chain;
      std::set<ValueId> anchors;
      if (bytes < kMinBytes || !ChainOf(id, chain, anchors)) continue;
      candidates.push_back({.value = id, .bytes = bytes, .seconds = SecondsOfChain(id, chain)});
    }
    return candidates;
  }

  int64_t BytesOf(ValueId id) const { return graph_.value(id).shape.elements() * DTypeBytes(graph_.value(id).dtype); }

  // The time of the nodes that recompute a value. Fusion makes one launch of connected pointwise ones, which reads and writes only what
  // others make and read.
  double SecondsOfChain(ValueId result, const std::vector<int>& chain) const {
    std::set<ValueId> written{result};  // by the launches of pointwise nodes
    for (int at : chain) {
      const Node& node = graph_.nodes[static_cast<size_t>(at)];
      if (!CanFuse(graph_, node)) ForEachUse(node, [&](ValueId id) { written.insert(id); });
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
            cost.bytes += static_cast<double>(BytesOf(id));
          } else {
            cost.flops += std::exchange(part->second.flops, 0);
            cost.bytes += std::exchange(part->second.bytes, 0);
          }
        });
        if (!written.contains(node.outputs[0])) {
          open.emplace(node.outputs[0], cost);
          continue;
        }
        cost.bytes += static_cast<double>(BytesOf(node.outputs[0]));
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
      if (const auto chosen = chosen_.find(id); chosen != chosen_.end()) {
        std::map<ValueId, ValueId> own;
        for (int node : chosen->second) RemakeNode(graph_, originals_[static_cast<size_t>(node)], own);
        again.emplace(id, own.at(id));
        break;
      }
      const int at = uses_.producer[static_cast<size_t>(id)];
      if (at < 0 || !saved_[static_cast<size_t>(id)] || !IsView(originals_[static_cast<size_t>(at)])) {
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
        RemakeNode(graph_, originals_[static_cast<size_t>(uses_.producer[static_cast<size_t>(view)])], own);
        made = own.at(view);
      } else {
        made = view;
      }
      id = view;
      again.emplace(id, made);
    }
    return made;
  }

  Graph& graph_;
  const DeviceCosts costs_;
  const int threads_;
  const Uses uses_;
  std::vector<bool> saved_;                     // by value id
  std::map<ValueId, std::vector<int>> chosen_;  // the nodes that recompute a value
  std::set<ValueId> anchors_;                   // values that they are recomputed from
  const std::vector<Node> originals_;           // by position; copies, since nodes of the graph move
};

}  // namespace

Recomputed Recompute(Graph& graph, int64_t wanted_bytes, DeviceKind device, int threads) {
  return Recomputer(graph, device, threads).Run(wanted_bytes);
}

}  // namespace gradloom
