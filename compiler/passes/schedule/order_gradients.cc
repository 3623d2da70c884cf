#include "compiler/passes/schedule/order_gradients.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "compiler/passes/fusion/fuse_pointwise.h"
#include "compiler/passes/schedule/node_order.h"

namespace gradloom {
namespace {

class GradientOrder {
 public:
  explicit GradientOrder(Graph& graph) : graph_(graph) {
    FindValues();
    FindSent();
    for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) order_.push_back(i);
    position_ = order_;
  }

  void Run() {
    for (size_t at = 0; at < order_.size(); ++at) {
      for (size_t to = at; Raise(to);) {
      }
    }
    std::vector<Node> nodes;
    nodes.reserve(order_.size());
    for (int i : order_) nodes.push_back(std::move(NodeOf(i)));
    graph_.nodes = std::move(nodes);
  }

 private:
  // Nodes are known by their original positions here.
  Node& NodeOf(int i) { return graph_.nodes[static_cast<size_t>(i)]; }
  const Node& NodeOf(int i) const { return graph_.nodes[static_cast<size_t>(i)]; }
  ValueId MemoryOf(ValueId id) const { return memory_[static_cast<size_t>(id)]; }
  int PositionOf(int i) const { return position_[static_cast<size_t>(i)]; }

  void FindValues() {
    const size_t n = static_cast<size_t>(graph_.num_values());
    maker_.assign(n, -1);
    readers_.resize(n);
    kept_.resize(n);
    for (size_t id = 0; id < n; ++id) memory_.push_back(static_cast<ValueId>(id));
    for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
      const Node& node = NodeOf(i);
      if (IsView(node)) {
        memory_[static_cast<size_t>(node.outputs[0])] = MemoryOf(node.inputs[0]);
        continue;
      }
      ForEachUse(node, [&](ValueId id) { readers_[static_cast<size_t>(MemoryOf(id))].push_back(i); });
      for (ValueId id : node.outputs) {
        if (id != kNoValue) maker_[static_cast<size_t>(id)] = i;
      }
    }
    for (ValueId id : graph_.outputs) kept_[static_cast<size_t>(MemoryOf(id))] = true;
  }

  // A device waits for a value that is sent, so what makes it, up to pointwise operators, is not deferred.
  void FindSent() {
    sent_.resize(graph_.nodes.size());
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      if (node.op != "Send" && !(sent_[i] && CanFuse(graph_, node))) continue;
      ForEachUse(node, [&](ValueId id) {
        if (const int maker = maker_[static_cast<size_t>(MemoryOf(id))]; maker >= 0) sent_[static_cast<size_t>(maker)] = true;
      });
    }
  }

  bool MayMove(int i) const {
    const Node& node = NodeOf(i);
    if (node.phase != Phase::kBackward || IsView(node) || IsCollective(node) || CanFuse(graph_, node)) return false;
    return std::none_of(node.outputs.begin(), node.outputs.end(),
                        [&](ValueId id) { return id != kNoValue && graph_.value(id).next_of != kNoValue; });
  }

  bool Reads(int i, ValueId memory) const {
    const std::vector<int>& readers = readers_[static_cast<size_t>(memory)];
    return std::binary_search(readers.begin(), readers.end(), i);
  }

  bool DependsOn(int i, int maker) const {
    bool depends = false;
    ForEachUse(NodeOf(i), [&](ValueId id) { depends = depends || maker_[static_cast<size_t>(MemoryOf(id))] == maker; });
    return depends;
  }

  int64_t MadeBytes(int i) const {
    int64_t bytes = 0;
    for (ValueId id : NodeOf(i).outputs) bytes += id == kNoValue ? 0 : graph_.value(id).bytes();
    return bytes;
  }

  // The bytes of values that die with the first of two neighbors.
  int64_t EndedBytes(int first, int second) const {
    const int end = std::max(PositionOf(first), PositionOf(second));
    std::vector<ValueId> ended;
    ForEachUse(NodeOf(first), [&](ValueId id) {
      const ValueId memory = MemoryOf(id);
      if (maker_[static_cast<size_t>(memory)] < 0 || kept_[static_cast<size_t>(memory)] || Reads(second, memory)) return;
      const std::vector<int>& readers = readers_[static_cast<size_t>(memory)];
      // If one is later, it is most likely among the last.
      if (std::all_of(readers.rbegin(), readers.rend(), [&](int reader) { return PositionOf(reader) <= end; })) ended.push_back(memory);
    });
    std::sort(ended.begin(), ended.end());
    ended.erase(std::unique(ended.begin(), ended.end()), ended.end());
    int64_t bytes = 0;
    for (ValueId id : ended) bytes += graph_.value(id).bytes();
    return bytes;
  }

  // Whether neither of two neighbors would run beside more bytes in the other order, and one of them beside fewer, whatever scratch memory
  // they have.
  bool GainsByExchange(int first, int second) const {
    const int64_t without_first = MadeBytes(first) - EndedBytes(first, second),
                  after_second = EndedBytes(second, first) - MadeBytes(second);
    return without_first >= 0 && after_second >= 0 && without_first + after_second > 0;
  }

  // Exchanges the node at position `at` with the one before it, apart from views, if that needs less memory. `at` follows the node.
  bool Raise(size_t& at) {
    const int second = order_[at];
    if (!MayMove(second)) return false;
    size_t before = at;
    while (before > 0 && IsView(NodeOf(order_[before - 1]))) --before;
    if (before == 0) return false;
    const int first = order_[before - 1];
    if (!MayMove(first) || sent_[static_cast<size_t>(first)] || DependsOn(second, first)) return false;
    if (!GainsByExchange(first, second)) return false;
    // Views of what the first one makes stay behind it.
    const auto begin = order_.begin() + static_cast<std::ptrdiff_t>(before) - 1, end = order_.begin() + static_cast<std::ptrdiff_t>(at) + 1;
    const auto moved = std::stable_partition(begin, end, [&](int i) { return i != first && !DependsOn(i, first); });
    for (auto i = begin; i != end; ++i) position_[static_cast<size_t>(*i)] = static_cast<int>(std::distance(order_.begin(), i));
    at = static_cast<size_t>(std::distance(order_.begin(), moved)) - 1;
    return true;
  }

  Graph& graph_;
  std::vector<ValueId> memory_;            // by value id: the value of which it is a view, or itself
  std::vector<int> maker_;                 // by value id; -1: it exists before the step, or is a view
  std::vector<std::vector<int>> readers_;  // by value id, of it or a view of it; ascending
  std::vector<bool> kept_;                 // by value id: fetched
  std::vector<bool> sent_;                 // by node
  std::vector<int> order_, position_;      // nodes by position, and the reverse
};

}  // namespace

void OrderGradients(Graph& graph) { GradientOrder(graph).Run(); }

}  // namespace gradloom
