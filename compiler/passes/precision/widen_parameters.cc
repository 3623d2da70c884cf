#include "compiler/passes/precision/widen_parameters.h"

#include <map>
#include <utility>

#include "compiler/passes/rewrite_nodes.h"

namespace gradloom {

int64_t WidenParameters(GraphBuilder& builder, const std::vector<ValueId>& parameters) {
  Graph& graph = builder.graph();
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  std::map<ValueId, ValueId> narrow;
  for (ValueId id : parameters) {
    const DType dtype = graph.value(id).dtype;
    if (dtype != DType::kFloat16 && dtype != DType::kBfloat16) continue;
    graph.set_data(id, Converted(graph.data(id)->view(), DType::kFloat32));
    graph.value(id).dtype = DType::kFloat32;
    builder.set_origin(graph.value(id).name);
    narrow.emplace(id, builder.Cast(id, dtype));
  }
  builder.set_origin("");
  for (Node& node : nodes) {
    ReplaceIds(narrow, node.inputs);
    graph.nodes.push_back(std::move(node));
  }
  ReplaceIds(narrow, graph.outputs);
  return static_cast<int64_t>(narrow.size());
}

}  // namespace gradloom
