#include "compiler/onnx/check/node_order.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler/onnx/check/check_names.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

constexpr size_t kNodesShown = 10;

// Visits the names that a node and its nested graphs read. Nesting is bounded before a model is parsed.
void ForEachName(const onnx::NodeProto& node, const std::function<void(const std::string&)>& f) {
  for (const std::string& input : node.input()) f(input);
  for (const auto& attribute : node.attribute()) {
    for (const auto& inner : attribute.g().node()) ForEachName(inner, f);
    for (const auto& graph : attribute.graphs()) {
      for (const auto& inner : graph.node()) ForEachName(inner, f);
    }
  }
}

class Order {
 public:
  explicit Order(const Nodes& nodes)
      : nodes_(nodes), needs_(static_cast<size_t>(nodes.size())), needed_by_(needs_.size()), open_(needs_.size()) {
    for (int i = 0; i < nodes.size(); ++i) {
      for (const std::string& output : nodes[i].output()) maker_.emplace(output, i);
    }
    for (int i = 0; i < nodes.size(); ++i) {
      ForEachName(nodes[i], [&](const std::string& name) {
        const auto made = maker_.find(name);
        if (name.empty() || made == maker_.end()) return;
        needs_[static_cast<size_t>(i)].push_back(made->second);
        needed_by_[static_cast<size_t>(made->second)].push_back(i);
        ++open_[static_cast<size_t>(i)];
      });
    }
  }

  // Returns the position of the node that produces the value, or -1.
  int ProducerOf(const std::string& name) const {
    const auto made = maker_.find(name);
    return made == maker_.end() ? -1 : made->second;
  }

  // Returns all nodes, each after those that it needs and otherwise in their original order; fewer if some form a cycle.
  std::vector<int> Sorted() {
    std::vector<int> sorted;
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (int i = 0; i < nodes_.size(); ++i) {
      if (open_[static_cast<size_t>(i)] == 0) ready.push(i);
    }
    while (!ready.empty()) {
      sorted.push_back(ready.top());
      ready.pop();
      for (int next : needed_by_[static_cast<size_t>(sorted.back())]) {
        if (--open_[static_cast<size_t>(next)] == 0) ready.push(next);
      }
    }
    return sorted;
  }

  // Returns nodes of which each needs the next, and the last the first; empty if the nodes can be sorted.
  std::vector<int> Cycle() {
    std::vector<int> ready;
    for (int i = 0; i < nodes_.size(); ++i) {
      if (open_[static_cast<size_t>(i)] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      const int done = ready.back();
      ready.pop_back();
      for (int next : needed_by_[static_cast<size_t>(done)]) {
        if (--open_[static_cast<size_t>(next)] == 0) ready.push_back(next);
      }
    }
    const auto stuck = [&](int i) { return open_[static_cast<size_t>(i)] > 0; };
    int at = 0;
    while (at < nodes_.size() && !stuck(at)) ++at;
    if (at == nodes_.size()) return {};
    // Every remaining node needs another remaining one, so following these from any node leads into a cycle.
    std::vector<int> way;
    std::vector<bool> seen(needs_.size());
    while (!seen[static_cast<size_t>(at)]) {
      seen[static_cast<size_t>(at)] = true;
      way.push_back(at);
      const std::vector<int>& needs = needs_[static_cast<size_t>(at)];
      at = *std::find_if(needs.begin(), needs.end(), stuck);
    }
    way.erase(way.begin(), std::find(way.begin(), way.end(), at));
    return way;
  }

 private:
  const Nodes& nodes_;
  std::unordered_map<std::string_view, int> maker_;
  std::vector<std::vector<int>> needs_, needed_by_;
  std::vector<int> open_;  // number of producers that are not sorted yet
};

bool SortList(Nodes& nodes);

// Sorts the nodes of the graphs nested in a node.
bool SortWithin(onnx::NodeProto& node) {
  bool moved = false;
  for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
    if (attribute.has_g()) moved |= SortList(*attribute.mutable_g()->mutable_node());
    for (onnx::GraphProto& graph : *attribute.mutable_graphs()) moved |= SortList(*graph.mutable_node());
  }
  return moved;
}

bool SortList(Nodes& nodes) {
  bool moved = false;
  for (onnx::NodeProto& node : nodes) moved |= SortWithin(node);
  const std::vector<int> sorted = Order(nodes).Sorted();
  if (static_cast<int>(sorted.size()) < nodes.size() || std::is_sorted(sorted.begin(), sorted.end())) return moved;
  std::vector<onnx::NodeProto*> taken(sorted.size());
  for (size_t i = sorted.size(); i-- > 0;) taken[i] = nodes.ReleaseLast();
  for (int i : sorted) nodes.AddAllocated(taken[static_cast<size_t>(i)]);
  return true;
}

}  // namespace

bool SortNodes(onnx::ModelProto& model) {
  bool moved = SortList(*model.mutable_graph()->mutable_node());
  for (onnx::FunctionProto& function : *model.mutable_functions()) moved |= SortList(*function.mutable_node());
  for (onnx::TrainingInfoProto& training : *model.mutable_training_info()) {
    if (training.has_initialization()) moved |= SortList(*training.mutable_initialization()->mutable_node());
    if (training.has_algorithm()) moved |= SortList(*training.mutable_algorithm()->mutable_node());
  }
  return moved;
}

std::string OrderFault(const Nodes& nodes, const onnx::NodeProto& reader, const std::string& name) {
  Order order(nodes);
  const int producer = order.ProducerOf(name);
  if (producer < 0) return "";
  const std::vector<int> cycle = order.Cycle();
  if (cycle.empty()) {
    return "'" + Escaped(name) + "' is read by " + Describe(reader) + " before " + Describe(nodes[producer]) +
           " produces it: the nodes are out of order";
  }
  if (cycle.size() == 1) {
    std::string own;
    ForEachName(nodes[cycle[0]], [&](const std::string& read) {
      if (order.ProducerOf(read) == cycle[0]) own = read;
    });
    return Describe(nodes[cycle[0]]) + " reads its own output '" + Escaped(own) + "'";
  }
  std::string text = "the graph has a cycle: ";
  for (size_t i = 0; i < std::min(cycle.size(), kNodesShown); ++i) text += Describe(nodes[cycle[i]]) + " needs ";
  return text + (cycle.size() > kNodesShown ? std::to_string(cycle.size() - kNodesShown) + " more, which need " : "") +
         Describe(nodes[cycle[0]]);
}

}  // namespace gradloom
