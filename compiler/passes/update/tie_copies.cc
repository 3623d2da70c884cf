#include "compiler/passes/update/tie_copies.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace gradloom {

std::vector<TiedTensor> TieCopies(Graph& graph, const std::vector<TiedTensor>& copies, std::vector<ValueId>& parameters) {
  std::vector<TiedTensor> tied;
  std::set<ValueId> trained(parameters.begin(), parameters.end());
  for (const TiedTensor& copy : copies) {
    const ValueId id = graph.Find(copy.name), source = graph.Find(copy.source);
    if (!trained.contains(id) || !trained.contains(source)) continue;
    const Shape& shape = graph.value(source).shape;
    if (graph.value(id).shape != Shape{shape[1], shape[0]} || graph.value(id).dtype != graph.value(source).dtype) continue;
    trained.erase(id);
    graph.drop_data(id);
    graph.value(id).role = Role::kActivation;
    Node node{.op = "Transpose", .inputs = {source}, .outputs = {id}, .origin = copy.name};
    node.attributes.set("perm", std::vector<int64_t>{1, 0});
    graph.AddNode(std::move(node));
    tied.push_back(copy);
  }
  std::erase_if(parameters, [&](ValueId id) { return !trained.contains(id); });
  // Before all readers.
  std::rotate(graph.nodes.begin(), graph.nodes.end() - std::ssize(tied), graph.nodes.end());
  return tied;
}

}  // namespace gradloom
