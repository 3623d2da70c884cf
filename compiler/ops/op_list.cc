// The list of operator families. It is explicit because linkers drop objects that only register themselves.
#include <algorithm>
#include <map>
#include <utility>

#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/op.h"
#include "runtime/base/views.h"

namespace gradloom {
namespace {

using Rows = std::span<const Op> (*)();

// One family per line.
// clang-format off
constexpr Rows kFamilies[] = {
    MatMulOps,
    ReduceOps,
    ShapeOps,
    ConvolutionOps,
    PoolingOps,
    NormalizationOps,
    NormalizationMoreOps,
    SoftmaxOps,
    RandomOps,
    DropoutOps,
    LossOps,
    OptimizerOps,
    UnaryOps,
    ActivationOps,
    BinaryOps,
    EinsumOps,
    DynamicOps,
    IndexOps,
    RecurrentOps,
    ResizeOps,
    AttentionOps,
    GridSampleOps,
    FusedOps,
    ReorderOps,
    CollectiveOps,
    QuantizedOps,
    RegionOfInterestOps,
    SignalOps,
    TensorScatterOps,
    TraditionalOps,
    ControlFlowOps,
    ExtentOps,
    DerivativeOps,
};
// clang-format on

struct Index {
  std::vector<const Op*> all;
  std::map<std::pair<std::string_view, std::string_view>, const Op*> by_name;
};

const Index& TheIndex() {
  static const Index index = [] {
    Index made;
    for (Rows rows : kFamilies) {
      for (const Op& op : rows()) {
        made.all.push_back(&op);
        GRADLOOM_CHECK(made.by_name.emplace(std::pair(op.domain, op.name), &op).second);
      }
    }
    return made;
  }();
  return index;
}

}  // namespace

const Op* FindOp(std::string_view domain, std::string_view name) {
  if (domain == "ai.onnx") domain = "";
  const auto found = TheIndex().by_name.find({domain, name});
  return found == TheIndex().by_name.end() ? nullptr : found->second;
}

bool KeepsElements(const Node& node) { return KeepsElements(node.domain, node.op); }

bool ForwardsElements(const Node& node) {
  return KeepsElements(node) || (node.domain.empty() && (node.op == "Cast" || node.op == "Expand"));
}

std::span<const Op* const> AllOps() { return TheIndex().all; }

namespace {

MatrixWork MatrixWorkOf(const Op& op, const Graph& graph, const Node& node) {
  if (!op.has(kProduct)) return MatrixWork::kNone;
  const DType dtype = graph.value(node.inputs[0]).dtype;
  if (Is16BitFloat(dtype)) return MatrixWork::kHalf;
  return node.attributes.Int("allow_tf32", 0) != 0 ? MatrixWork::kTf32 : MatrixWork::kNone;
}

}  // namespace

Cost CostOf(const Graph& graph, const Node& node) {
  const Op* op = FindOp(node.domain, node.op);
  if (op != nullptr && op->cost != nullptr) {
    Cost cost = op->cost(graph, node);
    cost.matrix = MatrixWorkOf(*op, graph, node);
    return cost;
  }
  double flops = 0;
  for (ValueId id : node.outputs) {
    if (id != kNoValue) flops += static_cast<double>(graph.value(id).shape.elements());
  }
  return CostWithFlops(graph, node, flops);
}

}  // namespace gradloom
