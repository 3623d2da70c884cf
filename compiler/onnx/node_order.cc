#include "compiler/onnx/node_order.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler/onnx/check_names.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

constexpr size_t kNodesShown = 10;

// What a node reads, what its nested graphs read included. Nesting is bounded before a model is parsed.
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

  // The position of the node that makes it, or -1.
  int MakerOf(const std::string& name) const {
    const auto made = maker_.find(name);
    return made == maker_.end() ? -1 : made->second;
  }

  // Nodes of which each needs the next, and the last the first; none where the nodes can be sorted.
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
    // Each node that is left needs one that is left: going on from any leads into a cycle.
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
  std::vector<int> open_;  // needs that are not met yet
};

}  // namespace

std::string OrderFault(const Nodes& nodes, const onnx::NodeProto& reader, const std::string& name) {
  Order order(nodes);
  const int maker = order.MakerOf(name);
  if (maker < 0) return "";
  const std::vector<int> cycle = order.Cycle();
  if (cycle.empty()) {
    return "'" + Escaped(name) + "' is read by " + Describe(reader) + " before " + Describe(nodes[maker]) +
           " makes it: the nodes are out of order";
  }
  if (cycle.size() == 1) {
    std::string own;
    ForEachName(nodes[cycle[0]], [&](const std::string& read) {
      if (order.MakerOf(read) == cycle[0]) own = read;
    });
    return Describe(nodes[cycle[0]]) + " reads its own output '" + Escaped(own) + "'";
  }
  std::string text = "the nodes form a cycle: ";
  for (size_t i = 0; i < std::min(cycle.size(), kNodesShown); ++i) text += Describe(nodes[cycle[i]]) + " needs ";
  return text + (cycle.size() > kNodesShown ? std::to_string(cycle.size() - kNodesShown) + " more, which need " : "") +
         Describe(nodes[cycle[0]]);
}

}  // namespace gradloom
