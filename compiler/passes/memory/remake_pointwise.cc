#include "compiler/passes/memory/remake_pointwise.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "compiler/passes/fusion/fuse_pointwise.h"
#include "compiler/passes/schedule/node_order.h"

namespace gradloom {
namespace {

// One read and one write of memory take about as long as this many operators on a tile in a cache.
constexpr int kMaxNodes = 6;
// Smaller values stay in a cache anyway.
constexpr int64_t kMinBytes = 1 << 14;
// An input that is this many times smaller than the value may be kept for it, such as numbers per channel.
constexpr int64_t kSizeRatio = 16;

class Remaker {
 public:
  explicit Remaker(Graph& graph) : graph_(graph), uses_(graph), originals_(graph.nodes) {}

  void Run() {
    chains_.resize(static_cast<size_t>(graph_.num_values()));
    remade_.resize(static_cast<size_t>(graph_.num_values()));
    fetched_.resize(static_cast<size_t>(graph_.num_values()));
    for (ValueId id : graph_.outputs) fetched_[static_cast<size_t>(id)] = true;
    read_by_backward_.resize(static_cast<size_t>(graph_.num_values()));
    for (const Node& node : originals_) {
      if (node.phase != Phase::kForward) ForEachUse(node, [&](ValueId id) { read_by_backward_[static_cast<size_t>(id)] = true; });
    }
    bool any = false;
    for (size_t at = 0; at < originals_.size(); ++at) any = Visit(static_cast<int>(at)) || any;
    if (any) Rewrite();
  }

 private:
  // The nodes, in order, that recompute a value from values that the backward pass reads anyway; `possible`: there are few enough.
  struct Chain {
    bool possible = false;
    std::vector<int> nodes;
  };

  bool IsMade(ValueId id) const { return uses_.ProducerOf(id) >= 0; }

  int64_t Bytes(ValueId id) const { return graph_.value(id).bytes(); }

  bool ReadByBackward(ValueId id) const { return read_by_backward_[static_cast<size_t>(id)]; }

  // Whether every reader in the backward pass can hold the value in its tiles.
  bool ReadByTilesAlone(ValueId id) const {
    const std::vector<int>& readers = uses_.consumers[static_cast<size_t>(id)];
    return std::all_of(readers.begin(), readers.end(), [&](int reader) {
      const Node& node = originals_[static_cast<size_t>(reader)];
      if (node.phase == Phase::kForward) return !IsView(node);
      return node.phase == Phase::kBackward && CanFuse(graph_, node) && graph_.value(node.outputs[0]).shape == graph_.value(id).shape;
    });
  }

  // Decides whether the result of a node is recomputed, and returns it.
  bool Visit(int at) {
    const Node& node = originals_[static_cast<size_t>(at)];
    if (node.phase != Phase::kForward || !CanFuse(graph_, node)) return false;
    const ValueId id = node.outputs[0];
    Chain& chain = chains_[static_cast<size_t>(id)];
    chain.possible = true;
    ForEachUse(node, [&](ValueId input) {
      if (!IsMade(input) || (ReadByBackward(input) && !remade_[static_cast<size_t>(input)])) return;
      if (Bytes(input) * kSizeRatio <= Bytes(id)) return;
      // Of a value and its 16-bit original, the original is kept.
      if (node.op == "Cast" && ReadByBackward(id) && 2 * Bytes(input) <= Bytes(id)) return;
      const Chain& before = chains_[static_cast<size_t>(input)];
      chain.possible = chain.possible && before.possible;
      if (chain.possible) chain.nodes.insert(chain.nodes.end(), before.nodes.begin(), before.nodes.end());
    });
    chain.nodes.push_back(at);
    std::sort(chain.nodes.begin(), chain.nodes.end());
    chain.nodes.erase(std::unique(chain.nodes.begin(), chain.nodes.end()), chain.nodes.end());
    chain.possible = chain.possible && chain.nodes.size() <= kMaxNodes;
    if (!chain.possible) {
      chain.nodes.clear();
      return false;
    }
    const Value& value = graph_.value(id);
    const bool remade = Bytes(id) >= kMinBytes && ReadByBackward(id) && value.next_of == kNoValue && !fetched_[static_cast<size_t>(id)] &&
                        ReadByTilesAlone(id);
    remade_[static_cast<size_t>(id)] = remade;
    return remade;
  }

  // Inserts each chain before the first backward reader of its value, and makes backward readers use the new value.
  void Rewrite() {
    graph_.nodes.clear();
    std::map<ValueId, ValueId> again;
    for (Node node : originals_) {
      if (node.phase == Phase::kBackward) {
        for (ValueId& id : node.inputs) {
          if (id == kNoValue || static_cast<size_t>(id) >= remade_.size() || !remade_[static_cast<size_t>(id)]) continue;
          for (int link : chains_[static_cast<size_t>(id)].nodes) {
            const Node& made = originals_[static_cast<size_t>(link)];
            if (!again.contains(made.outputs[0])) RemakeNode(graph_, made, again);
          }
          id = again.at(id);
        }
      }
      graph_.nodes.push_back(std::move(node));
    }
  }

  Graph& graph_;
  const Uses uses_;
  const std::vector<Node> originals_;                      // copies, since nodes of the graph move
  std::vector<Chain> chains_;                              // by value id
  std::vector<bool> remade_, fetched_, read_by_backward_;  // by value id
};

}  // namespace

void RemakePointwise(Graph& graph) { Remaker(graph).Run(); }

void RemakeNode(Graph& graph, const Node& node, std::map<ValueId, ValueId>& own) {
  Node copy{.op = node.op, .domain = node.domain, .inputs = node.inputs, .outputs = {}, .attributes = node.attributes};
  copy.phase = Phase::kBackward;
  copy.origin = node.origin;
  for (ValueId& id : copy.inputs) {
    if (const auto made = own.find(id); made != own.end()) id = made->second;
  }
  for (ValueId id : node.outputs) {
    if (id == kNoValue) {
      copy.outputs.push_back(kNoValue);
      continue;
    }
    const Value value = graph.value(id);
    copy.outputs.push_back(graph.AddValue(value.name + "/again", value.dtype, value.shape, Role::kActivation));
    own[id] = copy.outputs.back();
  }
  graph.AddNode(std::move(copy));
}

}  // namespace gradloom
