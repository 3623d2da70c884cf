#include "compiler/passes/fusion/join_nodes.h"

#include <map>
#include <utility>

namespace gradloom {

void JoinNodes(Graph& graph, const std::function<std::optional<std::string>(const Node&)>& kind_of,
               const std::function<bool(const std::vector<int>& joined, int next)>& fits,
               const std::function<Node(const std::vector<int>&)>& join) {
  std::map<int, Node> joined;  // by position of the last member
  std::vector<bool> gone(graph.nodes.size());
  const auto close = [&](const std::vector<int>& members) {
    if (members.size() < 2) return;
    const Node& last = graph.nodes[static_cast<size_t>(members.back())];
    Node node = join(members);
    node.phase = last.phase;
    node.device = last.device;
    node.origin = last.origin;
    for (int at : members) gone[static_cast<size_t>(at)] = true;
    joined.emplace(members.back(), std::move(node));
  };
  std::map<std::string, std::vector<int>> open;
  for (int at = 0; at < static_cast<int>(graph.nodes.size()); ++at) {
    const Node& node = graph.nodes[static_cast<size_t>(at)];
    const std::optional<std::string> kind = kind_of(node);
    if (!kind) continue;
    std::vector<int>& members = open[*kind];
    if (!members.empty() && !fits(members, at)) close(std::exchange(members, {}));
    members.push_back(at);
  }
  for (const auto& [kind, members] : open) close(members);
  if (joined.empty()) return;
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  for (size_t at = 0; at < nodes.size(); ++at) {
    if (const auto found = joined.find(static_cast<int>(at)); found != joined.end()) {
      graph.AddNode(std::move(found->second));
    } else if (!gone[at]) {
      graph.nodes.push_back(std::move(nodes[at]));
    }
  }
}

}  // namespace gradloom
