#include "compiler/passes/split_batch_norm.h"

#include <algorithm>
#include <set>
#include <vector>

#include "compiler/passes/fuse_pointwise.h"
#include "compiler/passes/rewrite_nodes.h"

namespace gradloom {
namespace {

// Returns the results that are fetched or that only nodes read which cannot be fused with them.
std::set<ValueId> ReadWhole(const Graph& graph) {
  std::set<ValueId> whole(graph.outputs.begin(), graph.outputs.end());
  for (const Node& node : graph.nodes) {
    if (!CanFuse(graph, node)) ForEachUse(node, [&](ValueId id) { whole.insert(id); });
  }
  return whole;
}

bool IsSplit(const Graph& graph, const Node& node, const std::set<ValueId>& read_whole, DeviceKind device) {
  if (node.domain != kGradloomDomain || node.op != "BatchNormTrain" || node.outputs[0] == kNoValue) return false;
  const DType dtype = graph.value(node.outputs[0]).dtype;
  const bool half = device == DeviceKind::kCuda && Is16BitFloat(dtype);
  return (half || dtype == DType::kFloat32) && graph.value(node.inputs[1]).dtype == DType::kFloat32 &&
         !read_whole.contains(node.outputs[0]);
}

void Split(GraphBuilder& b, const Node& node) {
  const std::vector<ValueId> made = b.Ops("BatchNormLine", kGradloomDomain, node.inputs, 6, node.attributes);
  Node& line = b.graph().nodes.back();
  for (size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) line.outputs[i - 1] = node.outputs[i];
  }
  const ValueId y = b.Add(b.Mul(b.Sub(b.Cast(node.inputs[0], DType::kFloat32), made[3]), made[4]), made[5]);
  b.Cast(y, b.dtype(node.inputs[0]));
  b.graph().nodes.back().outputs[0] = node.outputs[0];
}

}  // namespace

void SplitBatchNorm(GraphBuilder& builder, DeviceKind device) {
  const std::set<ValueId> read_whole = ReadWhole(builder.graph());
  RewriteNodes(builder, [&](const Node& node) {
    const bool split = IsSplit(builder.graph(), node, read_whole, device);
    if (split) Split(builder, node);
    return split;
  });
}

}  // namespace gradloom
