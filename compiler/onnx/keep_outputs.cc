#include "compiler/onnx/keep_outputs.h"

#include <algorithm>
#include <set>

#include "onnx/onnx_pb.h"
#include "runtime/base/error.h"
#include "runtime/base/joined.h"
#include "runtime/base/suggestion.h"

namespace gradloom {
namespace {

using Names = std::set<std::string, std::less<>>;

// Adds all names that a node and its nested graphs read. Names that are local to a nested graph may be included, which at worst keeps too
// much.
void AddReads(const onnx::NodeProto& node, Names& names) {
  const auto add_graph = [&](const onnx::GraphProto& graph) {
    for (const onnx::NodeProto& nested : graph.node()) AddReads(nested, names);
    for (const onnx::ValueInfoProto& output : graph.output()) names.insert(output.name());
  };
  for (const std::string& input : node.input()) names.insert(input);
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g()) add_graph(attribute.g());
    for (const onnx::GraphProto& graph : attribute.graphs()) add_graph(graph);
  }
}

// Keeps the elements for which `keep` holds, in order.
template <typename Repeated, typename Keep>
void KeepIf(Repeated& list, Keep keep) {
  int kept = 0;
  for (int i = 0; i < list.size(); ++i) {
    if (keep(list.Get(i))) list.SwapElements(kept++, i);
  }
  list.DeleteSubrange(kept, list.size() - kept);
}

// `inner`: names that nodes of the graph produce are correct, too.
void CheckNames(const std::vector<std::string>& names, const onnx::GraphProto& graph, bool inner) {
  std::vector<std::string> known;
  for (const onnx::ValueInfoProto& output : graph.output()) known.push_back(output.name());
  Names produced;
  for (const onnx::NodeProto& node : graph.node()) {
    if (inner) produced.insert(node.output().begin(), node.output().end());
  }
  produced.erase("");
  for (const std::string& name : names) {
    if (produced.contains(name) || std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw Error(ErrorCode::kConfig, "the model has no output '" + Escaped(name) + "'", "",
                Suggestion(name, known, "its outputs are: " + JoinedNames(known)));
  }
}

// Relies on the order of nodes: readers follow producers. Adds to `needed` what the nodes read and produce.
std::vector<bool> NodesNeededFor(const onnx::GraphProto& graph, Names& needed) {
  std::vector<bool> keep(static_cast<size_t>(graph.node_size()));
  for (int i = graph.node_size(); i-- > 0;) {
    const onnx::NodeProto& node = graph.node(i);
    if (std::none_of(node.output().begin(), node.output().end(), [&](const std::string& output) { return needed.contains(output); }))
      continue;
    keep[static_cast<size_t>(i)] = true;
    AddReads(node, needed);
    for (const std::string& output : node.output()) needed.insert(output);
  }
  return keep;
}

}  // namespace

std::vector<bool> NodesNeededFor(const onnx::GraphProto& graph, const std::vector<std::string>& values) {
  CheckNames(values, graph, /*inner=*/true);
  Names needed(values.begin(), values.end());
  return NodesNeededFor(graph, needed);
}

void KeepOutputs(const std::vector<std::string>& names, onnx::ModelProto& model) {
  onnx::GraphProto& graph = *model.mutable_graph();
  CheckNames(names, graph, /*inner=*/false);
  Names needed(names.begin(), names.end());
  KeepIf(*graph.mutable_output(), [&](const onnx::ValueInfoProto& output) { return needed.contains(output.name()); });
  const std::vector<bool> keep = NodesNeededFor(graph, needed);
  size_t at = 0;
  KeepIf(*graph.mutable_node(), [&](const onnx::NodeProto&) { return keep[at++]; });
  const auto is_needed = [&](const auto& value) { return needed.contains(value.name()); };
  KeepIf(*graph.mutable_initializer(), is_needed);
  KeepIf(*graph.mutable_sparse_initializer(),
         [&](const onnx::SparseTensorProto& tensor) { return needed.contains(tensor.values().name()); });
  KeepIf(*graph.mutable_input(), is_needed);
  KeepIf(*graph.mutable_value_info(), is_needed);
}

}  // namespace gradloom
