#include "compiler/passes/devices/expose_sums.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ops/loss_rows.h"
#include "compiler/passes/rewrite_nodes.h"
#include "runtime/base/ignored_class.h"

namespace gradloom {
namespace {

// Makes `id` an alias of `made`, in the place of the node that computed it.
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
  const ValueId mean = b.Reshape(b.Div(sums[0], sums[1]), b.shape(node.outputs[0]));
  const DType type = b.dtype(node.outputs[0]);
  Become(b, node.outputs[0], b.dtype(mean) == type ? mean : b.Cast(mean, type));
  if (node.outputs.size() > 1) Become(b, node.outputs[1], b.Op("LogSoftmax", {node.inputs[0]}, {{"axis", int64_t{1}}}));
}

// Returns the number of elements per channel over the whole batch. It is a floating-point number, which the division over devices leaves
// unchanged.
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

namespace {

// Returns the second sum of gradloom.CrossEntropy and gradloom.Nll.
ValueId CountOfRows(GraphBuilder& b, const Node& node) {
  const ValueId weight = node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
  return b.Own("LabelWeights", {node.inputs[1], weight},
               {{"ignore_index", IgnoredClassOf(node.attributes)}, {"to", static_cast<int64_t>(b.dtype(node.outputs[1]))}});
}

// Moves the nodes that compute these values, and everything that they need, to the front.
void MoveToFront(Graph& graph, const std::set<ValueId>& values) {
  std::set<ValueId> needed = values;
  std::vector<bool> first(graph.nodes.size());
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    first[i] = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return needed.contains(id); });
    if (first[i]) ForEachUse(node, [&](ValueId id) { needed.insert(id); });
  }
  std::vector<Node> ordered;
  for (const bool now : {true, false}) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (first[i] == now) ordered.push_back(std::move(graph.nodes[i]));
    }
  }
  graph.nodes = std::move(ordered);
}

// Devices need the count over the whole batch before the backward pass can start. It only depends on the targets, so it can be all-reduced
// early.
void CountRowsFirst(GraphBuilder& b) {
  std::set<ValueId> counts;
  RewriteNodes(b, [&](const Node& node) {
    const bool loss = node.domain == kGradloomDomain && (node.op == "CrossEntropy" || node.op == "Nll");
    if (!loss) return false;
    Node own = node;
    const Value count = b.graph().value(node.outputs[1]);
    own.outputs[1] = b.graph().AddValue(count.name + "/here", count.dtype, count.shape, count.role);
    b.graph().nodes.push_back(std::move(own));
    Become(b, count.id, CountOfRows(b, node));
    counts.insert(count.id);
    return true;
  });
  MoveToFront(b.graph(), counts);
}

}  // namespace

void ExposeLossSums(GraphBuilder& builder, bool divided) {
  RewriteNodes(builder, [&](const Node& node) {
    const bool loss = node.domain.empty() && (node.op == "SoftmaxCrossEntropyLoss" || node.op == "NegativeLogLikelihoodLoss") &&
                      node.attributes.String("reduction", "mean") == "mean";
    if (loss) MeanLoss(builder, node);
    return loss;
  });
  if (divided) CountRowsFirst(builder);
}

void ExposeBatchNormSums(GraphBuilder& builder) {
  RewriteNodes(builder, [&](const Node& node) {
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
