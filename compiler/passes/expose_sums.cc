#include "compiler/passes/expose_sums.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ops/loss_rows.h"

namespace gradloom {
namespace {

// Runs rewrite(node) on every node, in whose place goes what it appends; false: the node stays.
template <typename Rewrite>
void ForEachNode(GraphBuilder& b, Rewrite rewrite) {
  Graph& graph = b.graph();
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  for (Node& node : nodes) {
    b.set_origin(node.origin);
    b.set_phase(node.phase);
    const size_t before = graph.nodes.size();
    if (!rewrite(node)) graph.nodes.push_back(std::move(node));
    for (size_t i = before; i < graph.nodes.size(); ++i) graph.nodes[i].device = node.device;
  }
  b.set_origin("");
  b.set_phase(Phase::kForward);
}

// Lets `id` be what `made` is.
void Become(GraphBuilder& b, ValueId id, ValueId made) {
  if (id == kNoValue) return;
  b.Op("Identity", {made});
  b.graph().nodes.back().outputs[0] = id;
}

void MeanLoss(GraphBuilder& b, const Node& node) {
  const LossRows rows = RowsOfOnnxLoss(b, node);
  const bool scores = node.op == "SoftmaxCrossEntropyLoss";
  const std::vector<ValueId> sums = b.Ops(scores ? "CrossEntropy" : "Nll", kGradloomDomain, {rows.scores, rows.target, rows.class_weight},
                                          scores ? 3 : 2, {{"ignore_index", rows.ignore_index}});
  Become(b, node.outputs[0], b.Reshape(b.Div(sums[0], sums[1]), b.shape(node.outputs[0])));
  if (node.outputs.size() > 1) Become(b, node.outputs[1], b.Op("LogSoftmax", {node.inputs[0]}, {{"axis", int64_t{1}}}));
}

// Elements of the whole batch that make a channel: a floating number, which devices leave as it is.
double CountOf(const Shape& x) { return static_cast<double>(x.elements()) / static_cast<double>(std::max<int64_t>(x[1], 1)); }

void BatchNorm(GraphBuilder& b, const Node& node) {
  const ValueId x = node.inputs[0], scale = node.inputs[1];
  const Attributes attributes{{"epsilon", node.attributes.Float("epsilon", 1e-5)}, {"count", CountOf(b.shape(x))}};
  const ValueId sums = b.Own("BatchNormSums", {x});
  const std::vector<ValueId> statistics = b.Ops("BatchNormStatistics", kGradloomDomain, {sums, scale}, 3, attributes);
  for (size_t i = 1; i < node.outputs.size(); ++i) Become(b, node.outputs[i], statistics[i - 1]);
  Become(b, node.outputs[0], b.Own("BatchNormApply", {x, scale, node.inputs[2], sums}, attributes));
}

void BatchNormGrad(GraphBuilder& b, const Node& node) {
  const ValueId dy = node.inputs[0], x = node.inputs[1], scale = node.inputs[2], mean = node.inputs[3], inv_std = node.inputs[4];
  const ValueId sums = b.Own("BatchNormGradSums", {dy, x, mean});
  const std::vector<ValueId> parameters = b.Ops("BatchNormGradParameters", kGradloomDomain, {sums, inv_std}, 2);
  for (size_t i = 1; i < node.outputs.size(); ++i) Become(b, node.outputs[i], parameters[i - 1]);
  if (node.outputs[0] == kNoValue) return;
  Become(b, node.outputs[0], b.Own("BatchNormGradApply", {dy, x, scale, mean, inv_std, sums}, {{"count", CountOf(b.shape(x))}}));
}

}  // namespace

void ExposeLossSums(GraphBuilder& builder) {
  ForEachNode(builder, [&](const Node& node) {
    const bool loss = node.domain.empty() && (node.op == "SoftmaxCrossEntropyLoss" || node.op == "NegativeLogLikelihoodLoss") &&
                      node.attributes.String("reduction", "mean") == "mean";
    if (loss) MeanLoss(builder, node);
    return loss;
  });
}

void ExposeBatchNormSums(GraphBuilder& builder) {
  ForEachNode(builder, [&](const Node& node) {
    if (node.domain != kGradloomDomain) return false;
    if (node.op == "BatchNormTrain") {
      BatchNorm(builder, node);
    } else if (node.op == "BatchNormTrainGrad") {
      BatchNormGrad(builder, node);
    } else {
      return false;
    }
    return true;
  });
}

}  // namespace gradloom
