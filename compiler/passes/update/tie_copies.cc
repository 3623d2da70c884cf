#include "compiler/passes/update/tie_copies.h"

#include <algorithm>
#include <utility>

namespace gradloom {

std::vector<TiedTensor> TieCopies(Graph& graph, const std::vector<TiedTensor>& copies, std::vector<ValueId>& parameters) {
  std::vector<TiedTensor> tied;
  for (const TiedTensor& copy : copies) {
    const ValueId id = graph.Find(copy.name), source = graph.Find(copy.source);
    const auto trained = [&](ValueId value) { return std::ranges::find(parameters, value) != parameters.end(); };
    if (!trained(id) || !trained(source)) continue;
    const Shape& shape = graph.value(source).shape;
    if (graph.value(id).shape != Shape{shape[1], shape[0]} || graph.value(id).dtype != graph.value(source).dtype) continue;
    std::erase(parameters, id);
    graph.drop_data(id);
    graph.value(id).role = Role::kActivation;
    Node node{.op = "Transpose", .inputs = {source}, .outputs = {id}, .origin = copy.name};
    node.attributes.set("perm", std::vector<int64_t>{1, 0});
    graph.AddNode(std::move(node));
    // Before all readers.
    std::rotate(graph.nodes.begin(), graph.nodes.end() - 1, graph.nodes.end());
    tied.push_back(copy);
  }
  return tied;
}

}  // namespace gradloom
