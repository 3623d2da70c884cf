#include "compiler/passes/fusion/split_batch_norm.h"

#include <algorithm>
#include <set>
#include <vector>

#include "compiler/passes/fusion/fuse_pointwise.h"
#include "compiler/passes/rewrite_nodes.h"

namespace gradloom {
namespace {

// The values that nodes read which can be fused with them, and those that others read.
struct Reads {
  explicit Reads(const Graph& graph) : whole(graph.outputs.begin(), graph.outputs.end()) {
    for (const Node& node : graph.nodes) {
      std::set<ValueId>& reads = CanFuse(graph, node) ? pointwise : whole;
      ForEachUse(node, [&](ValueId id) { reads.insert(id); });
    }
  }
  // Not if nothing reads it: of two devices that compute the same statistics, only one may have the readers.
  bool ArePointwise(ValueId id) const { return pointwise.contains(id) && !whole.contains(id); }

  std::set<ValueId> whole;  // or fetched
  std::set<ValueId> pointwise;
};

bool IsTraining(const Node& node) { return node.domain == kGradloomDomain && node.op == "BatchNormTrain"; }

// With given statistics. On a GPU, its own kernel stays.
bool IsInference(const Node& node, DeviceKind device) {
  return device == DeviceKind::kCpu && node.domain.empty() && node.op == "BatchNormalization" &&
         node.attributes.Int("training_mode", 0) == 0 && node.outputs.size() == 1;
}

bool IsSplit(const Graph& graph, const Node& node, const Reads& reads, DeviceKind device) {
  if ((!IsTraining(node) && !IsInference(node, device)) || node.outputs[0] == kNoValue) return false;
  const DType dtype = graph.value(node.outputs[0]).dtype;
  const bool half = device == DeviceKind::kCuda && Is16BitFloat(dtype);
  const auto is_float = [&](ValueId id) { return graph.value(id).dtype == DType::kFloat32; };
  return (half || dtype == DType::kFloat32) && std::all_of(node.inputs.begin() + 1, node.inputs.end(), is_float) &&
         reads.ArePointwise(node.outputs[0]);
}

struct LineValues {
  ValueId center, factor, offset;  // broadcast to the operand
};

LineValues LineOfBatch(GraphBuilder& b, const Node& node) {
  const std::vector<ValueId> made = b.Ops("BatchNormLine", kGradloomDomain, node.inputs, 6, node.attributes);
  Node& line = b.graph().nodes.back();
  for (size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) line.outputs[i - 1] = node.outputs[i];
  }
  return {made[3], made[4], made[5]};
}

// The factor is computed in each run: statistics and parameters may have changed since the last.
LineValues LineOfStatistics(GraphBuilder& b, const Node& node) {
  const ValueId scale = node.inputs[1], offset = node.inputs[2], mean = node.inputs[3], variance = node.inputs[4];
  const ValueId epsilon = b.Scalar(node.attributes.Float("epsilon", 1e-5), DType::kFloat32);
  const ValueId factor = b.Div(scale, b.Op("Sqrt", {b.Add(variance, epsilon)}));
  const Shape x = b.shape(node.inputs[0]);
  Shape beside{x[1]};
  for (int axis = 2; axis < x.rank(); ++axis) beside.push_back(1);
  return {b.Reshape(mean, beside), b.Reshape(factor, beside), b.Reshape(offset, beside)};
}

void Split(GraphBuilder& b, const Node& node) {
  const auto [center, factor, offset] = IsTraining(node) ? LineOfBatch(b, node) : LineOfStatistics(b, node);
  const ValueId y = b.Add(b.Mul(b.Sub(b.Cast(node.inputs[0], DType::kFloat32), center), factor), offset);
  b.Cast(y, b.dtype(node.inputs[0]));
  b.graph().nodes.back().outputs[0] = node.outputs[0];
}

}  // namespace

void SplitBatchNorm(GraphBuilder& builder, DeviceKind device) {
  const Reads reads(builder.graph());
  RewriteNodes(builder, [&](const Node& node) {
    const bool split = IsSplit(builder.graph(), node, reads, device);
    if (split) Split(builder, node);
    return split;
  });
}

}  // namespace gradloom
