#include "compiler/passes/schedule/node_order.h"

#include <algorithm>
#include <iterator>

#include "compiler/ops/op.h"
#include "compiler/passes/schedule/refusals.h"

namespace gradloom {

bool IsView(const Node& node) { return KeepsElements(node) && !IsInputCopy(node); }

bool IsCollective(const Node& node) {
  const Op* op = FindOp(node.domain, node.op);
  return op != nullptr && op->has(kCollective);
}

namespace {

// Adds dependencies of updates, and of collectives, through which devices learn that no other has refused the batch: on the nodes that may
// refuse it, and for an update also on the first collective after them.
class RefusalDependencies {
 public:
  explicit RefusalDependencies(const Graph& graph)
      : graph_(graph), refusing_(RefusingNodes(graph)), collective_(FirstCollectiveAfter(graph, refusing_)) {}

  void AddTo(std::vector<int>& dependencies, int i) const {
    const Node& node = graph_.nodes[static_cast<size_t>(i)];
    const bool updates = node.phase == Phase::kUpdate && WritesState(graph_, node);
    if (refusing_.empty() || !(updates || IsCollective(node))) return;
    dependencies.insert(dependencies.end(), refusing_.begin(), std::lower_bound(refusing_.begin(), refusing_.end(), i));
    if (updates && collective_ >= 0 && collective_ < i) dependencies.push_back(collective_);
  }

 private:
  const Graph& graph_;
  const std::vector<int> refusing_;
  const int collective_;
};

}  // namespace

std::vector<std::vector<int>> DependenciesOf(const Graph& graph) {
  const RefusalDependencies refusal_dependencies(graph);
  // By value id: the producer of its bytes and the readers so far. A view stands for the value that it shows.
  const auto values = static_cast<size_t>(graph.num_values());
  std::vector<ValueId> shown(values);
  for (size_t id = 0; id < values; ++id) shown[id] = static_cast<ValueId>(id);
  std::vector<int> producer(values, -1);
  std::vector<std::vector<int>> readers(values);
  std::vector<std::vector<int>> dependencies(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (IsView(node)) {
      shown[static_cast<size_t>(node.outputs[0])] = shown[static_cast<size_t>(node.inputs[0])];
      continue;
    }
    std::vector<int>& mine = dependencies[i];
    for (ValueId id : node.outputs) {
      const ValueId old = id == kNoValue ? kNoValue : graph.value(id).next_of;
      if (old != kNoValue) mine.insert(mine.end(), readers[static_cast<size_t>(old)].begin(), readers[static_cast<size_t>(old)].end());
    }
    ForEachUse(node, [&](ValueId id) {
      const auto bytes = static_cast<size_t>(shown[static_cast<size_t>(id)]);
      if (producer[bytes] >= 0) mine.push_back(producer[bytes]);
      readers[bytes].push_back(static_cast<int>(i));
    });
    for (ValueId id : node.outputs) {
      if (id != kNoValue) producer[static_cast<size_t>(id)] = static_cast<int>(i);
    }
    refusal_dependencies.AddTo(mine, static_cast<int>(i));
    std::sort(mine.begin(), mine.end());
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  }
  return dependencies;
}

NodeOrder::NodeOrder(const Graph& graph, const ProgramPlan& plan)
    : streams_(std::max(plan.streams, 1)),
      stream_(graph.nodes.size(), 0),
      place_(graph.nodes.size(), 0),
      nodes_(static_cast<size_t>(streams_)) {
  const auto width = static_cast<size_t>(streams_);
  clocks_.assign(graph.nodes.size() * width, 0);
  std::vector<std::vector<int>> waits(graph.nodes.size());
  for (const Wait& wait : plan.waits) waits[static_cast<size_t>(wait.node)].push_back(wait.after);
  std::vector<int> last(width, -1), length(width, 0);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (i < plan.stream.size() && plan.stream[i] >= 0) stream_[i] = plan.stream[i];
    const auto own = static_cast<size_t>(stream_[i]);
    int* const clock = &clocks_[i * width];
    const auto join = [&](int before) {
      const int* const other = &clocks_[static_cast<size_t>(before) * width];
      for (size_t s = 0; s < width; ++s) clock[s] = std::max(clock[s], other[s]);
      int& at = clock[static_cast<size_t>(stream(before))];
      at = std::max(at, place(before));
    };
    if (last[own] >= 0) join(last[own]);
    for (int before : waits[i]) join(before);
    // A view takes no time and belongs to any stream.
    if (IsView(graph.nodes[i])) {
      place_[i] = length[own];
      continue;
    }
    place_[i] = ++length[own];
    last[own] = static_cast<int>(i);
    nodes_[own].push_back(last[own]);
  }
}

bool NodeOrder::AllBefore(const Reach& reach, int node, bool or_equal) const {
  for (int s = 0; s < streams_; ++s) {
    const int most = s == stream(node) && or_equal ? place(node) : NumEnded(node, s);
    if (reach[static_cast<size_t>(s)] > most) return false;
  }
  return true;
}

std::vector<int> NodeOrder::FirstAfter(const Reach& reach) const {
  std::vector<int> first;
  for (const std::vector<int>& nodes : nodes_) {
    // Along a stream, ever more has ended.
    const auto after = std::partition_point(nodes.begin(), nodes.end(), [&](int node) { return !AllBefore(reach, node, false); });
    first.push_back(after == nodes.end() ? kForever : *after);
  }
  return first;
}

void NodeOrder::Extend(Reach& reach, int node) const {
  int& at = reach[static_cast<size_t>(stream(node))];
  at = std::max(at, place(node));
}

}  // namespace gradloom
