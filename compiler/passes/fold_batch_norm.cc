#include "compiler/passes/fold_batch_norm.h"

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "compiler/passes/graph_match.h"
#include "compiler/passes/kept_values.h"

namespace gradloom {
namespace {

bool IsFloat(const Graph& graph, const std::vector<ValueId>& ids) {
  return std::all_of(ids.begin(), ids.end(), [&](ValueId id) { return id == kNoValue || graph.value(id).dtype == DType::kFloat32; });
}

void Fold(GraphBuilder& b, const Node& convolution, const Node& norm) {
  const bool has_bias = convolution.inputs.size() > 2 && convolution.inputs[2] != kNoValue;
  const ValueId scale = norm.inputs[1], offset = norm.inputs[2], mean = norm.inputs[3], variance = norm.inputs[4];
  const ValueId weights = convolution.inputs[1];
  b.set_origin(norm.origin);
  b.set_phase(norm.phase);
  const size_t before = b.graph().nodes.size();
  const ValueId epsilon = b.Scalar(norm.attributes.Float("epsilon", 1e-5), DType::kFloat32);
  const ValueId factor = b.Div(scale, b.Op("Sqrt", {b.Add(variance, epsilon)}));
  Shape of_filters(b.shape(weights));
  for (int axis = 1; axis < of_filters.rank(); ++axis) of_filters[axis] = 1;
  const ValueId scaled = b.Mul(weights, b.Reshape(factor, of_filters));
  const ValueId center = has_bias ? b.Sub(mean, convolution.inputs[2]) : mean;
  const ValueId bias = b.Sub(offset, b.Mul(center, factor));
  Node folded = convolution;
  folded.inputs = {convolution.inputs[0], scaled, bias};
  folded.outputs = {norm.outputs[0]};
  b.graph().AddNode(std::move(folded));
  for (size_t i = before; i < b.graph().nodes.size(); ++i) b.graph().nodes[i].device = norm.device;
  b.set_origin("");
  b.set_phase(Phase::kForward);
}

}  // namespace

void FoldBatchNorm(GraphBuilder& builder) {
  Graph& graph = builder.graph();
  const GraphMatch match(graph);
  const std::vector<bool> weights_alone = WeightsAlone(graph, {});
  const auto settled = [&](const Node& node) {
    return std::all_of(node.inputs.begin() + 1, node.inputs.end(),
                       [&](ValueId id) { return id == kNoValue || weights_alone[static_cast<size_t>(id)]; });
  };
  std::map<int, std::function<void()>> replaced;
  for (int at = 0; at < static_cast<int>(graph.nodes.size()); ++at) {
    const Node& norm = graph.nodes[static_cast<size_t>(at)];
    if (norm.op != "BatchNormalization" || !norm.domain.empty() || norm.outputs.size() != 1) continue;
    if (norm.attributes.Int("training_mode", 0) != 0 || !IsFloat(graph, norm.inputs) || !settled(norm)) continue;
    const int made = match.Producer(norm.inputs[0]);
    if (made < 0 || match.OnlyReader(norm.inputs[0]) == nullptr) continue;
    const Node& convolution = graph.nodes[static_cast<size_t>(made)];
    if (convolution.op != "Conv" || !convolution.domain.empty() || !IsFloat(graph, convolution.inputs) || !settled(convolution)) continue;
    replaced.emplace(made, [] {});
    replaced.emplace(at, [&builder, convolution, norm] { Fold(builder, convolution, norm); });
  }
  ReplaceNodes(graph, replaced);
}

}  // namespace gradloom
