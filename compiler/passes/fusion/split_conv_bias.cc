#include "compiler/passes/fusion/split_conv_bias.h"

#include <algorithm>
#include <set>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/passes/rewrite_nodes.h"

namespace gradloom {
namespace {

// Returns the values that pointwise operators read.
std::set<ValueId> ReadByPointwise(const Graph& graph) {
  std::set<ValueId> read;
  for (const Node& node : graph.nodes) {
    const Op* const op = FindOp(node.domain, node.op);
    if (op != nullptr && op->has(kPointwise)) read.insert(node.inputs.begin(), node.inputs.end());
  }
  return read;
}

}  // namespace

void SplitConvBias(GraphBuilder& b) {
  const std::set<ValueId> read = ReadByPointwise(b.graph());
  RewriteNodes(b, [&](Node& node) {
    const bool convolves = node.domain.empty() && (node.op == "Conv" || node.op == "ConvTranspose");
    if (!convolves || node.inputs.size() < 3 || node.inputs[2] == kNoValue || !read.contains(node.outputs[0])) return false;
    const Value y = b.graph().value(node.outputs[0]);
    Shape along(std::vector<int64_t>(static_cast<size_t>(y.shape.rank()), 1));
    along[1] = y.shape[1];
    const ValueId bias = b.Reshape(node.inputs[2], along), product = b.graph().AddValue(y.name + "/product", y.dtype, y.shape, y.role);
    Node convolution = node;
    convolution.inputs.resize(2);
    convolution.outputs = {product};
    b.graph().AddNode(std::move(convolution));
    Node sum{.op = "Add", .inputs = {product, bias}, .outputs = {y.id}};
    sum.phase = node.phase;
    sum.origin = node.origin;
    b.graph().AddNode(std::move(sum));
    return true;
  });
}

}  // namespace gradloom
