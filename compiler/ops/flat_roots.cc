#include "compiler/ops/flat_roots.h"

#include <algorithm>
#include <cmath>

#include "compiler/graph/constants.h"
#include "compiler/ops/op.h"

namespace gradloom {
namespace {

// Returns the producer of the value, or null.
const Node* Producer(const Graph& graph, ValueId id) {
  const auto makes = [&](const Node& node) { return std::find(node.outputs.begin(), node.outputs.end(), id) != node.outputs.end(); };
  const auto found = std::find_if(graph.nodes.rbegin(), graph.nodes.rend(), makes);
  return found == graph.nodes.rend() || !found->domain.empty() ? nullptr : &*found;
}

// Whether the value is non-negative and has a slope of 0 where it is 0.
bool IsPower(const Graph& graph, ValueId id) {
  const Node* node = Producer(graph, id);
  if (node == nullptr) return false;
  if (node->op == "Mul") return node->inputs[0] == node->inputs[1];
  if (node->op != "Pow") return false;
  const auto exponent = UniformConstant(graph, node->inputs[1]);
  if (!exponent || *exponent <= 1) return false;
  const Node* base = Producer(graph, node->inputs[0]);
  return std::fmod(*exponent, 2.0) == 0 || (base != nullptr && base->op == "Abs");
}

// Whether the value is another one with negative elements replaced by 0: a square of a distance from x^2 + y^2 - 2xy, which rounding may
// make negative.
bool IsClampedAtZero(const Graph& graph, const Node& node) {
  const auto zero = [&](size_t i) {
    return i < node.inputs.size() && node.inputs[i] != kNoValue && UniformConstant(graph, node.inputs[i]) == 0.0;
  };
  if (node.op == "Max") return node.inputs.size() == 2 && (zero(0) || zero(1));
  return node.op == "Relu" || (node.op == "Clip" && zero(1));
}

}  // namespace

bool RootIsFlatAtZero(const Graph& graph, ValueId id) {
  while (const Node* node = Producer(graph, id)) {
    const Op* op = FindOp(node->domain, node->op);
    if (node->op == "ReduceSumSquare" || IsClampedAtZero(graph, *node)) return true;
    if (node->op == "ReduceSum" || node->op == "ReduceMean") return IsPower(graph, node->inputs[0]);
    if (node->op == "Mul" || node->op == "Div") {
      const bool first = UniformConstant(graph, node->inputs[1]).has_value();
      const bool scaled = first || (node->op == "Mul" && UniformConstant(graph, node->inputs[0]));
      // Matches the product of the norms of two vectors, the divisor of a cosine.
      if (!scaled && (node->op == "Div" || !RootIsFlatAtZero(graph, node->inputs[0]))) return false;
      id = node->inputs[first ? 0 : 1];
    } else if (op != nullptr && op->has(kView)) {
      id = node->inputs[0];
    } else {
      return false;
    }
  }
  return false;
}

}  // namespace gradloom
