#include "compiler/passes/precision/lower_precision.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ops/op.h"

namespace gradloom {
namespace {

// kLower: always in 16 bits. kFollow: in 16 bits if the operands are. All others: float32.
enum class Rule : uint8_t { kLower, kFollow };

constexpr int kAll = 1 << 10;

struct Row {
  std::string_view op;
  Rule rule;
  int inputs = kAll;  // the number of leading inputs that are lowered; later ones stay float32 (statistics, scales)
  std::string_view domain = {};
};

// Operators that are not listed sum, compute powers or belong to losses: float32.
constexpr Row kRows[] = {
    {"Attention", Rule::kLower},
    {"AttentionDropout", Rule::kLower, kAll, kGradloomDomain},
    {"Conv", Rule::kLower},
    {"ConvTranspose", Rule::kLower},
    {"Einsum", Rule::kLower},
    {"GRU", Rule::kLower},
    {"Gemm", Rule::kLower},
    {"LSTM", Rule::kLower},
    {"MatMul", Rule::kLower},
    {"RNN", Rule::kLower},
    // Pointwise.
    {"Abs", Rule::kFollow},
    {"Add", Rule::kFollow},
    {"Celu", Rule::kFollow},
    {"Clip", Rule::kFollow},
    {"Div", Rule::kFollow},
    {"Dropout", Rule::kFollow, 1},
    {"Dropout", Rule::kFollow, 1, kGradloomDomain},
    {"Elu", Rule::kFollow},
    {"Erf", Rule::kFollow},
    {"Gelu", Rule::kFollow},
    {"HardSigmoid", Rule::kFollow},
    {"HardSwish", Rule::kFollow},
    {"Identity", Rule::kFollow},
    {"LeakyRelu", Rule::kFollow},
    {"MaskGradient", Rule::kFollow, 1, kGradloomDomain},
    {"Max", Rule::kFollow},
    {"Min", Rule::kFollow},
    {"Mish", Rule::kFollow},
    {"Mul", Rule::kFollow},
    {"Neg", Rule::kFollow},
    {"PRelu", Rule::kFollow},
    {"Relu", Rule::kFollow},
    {"Selu", Rule::kFollow},
    {"Sigmoid", Rule::kFollow},
    {"StopGradient", Rule::kFollow, 1, kGradloomDomain},
    {"Sub", Rule::kFollow},
    {"SwiGLU", Rule::kFollow},
    {"Swish", Rule::kFollow},
    {"Tanh", Rule::kFollow},
    {"ThresholdedRelu", Rule::kFollow},
    {"Where", Rule::kFollow},
    // Data movement.
    {"Concat", Rule::kFollow},
    {"DepthToSpace", Rule::kFollow},
    {"Expand", Rule::kFollow},
    {"Flatten", Rule::kFollow},
    {"Gather", Rule::kFollow},
    {"Pad", Rule::kFollow},
    {"Reshape", Rule::kFollow},
    {"Slice", Rule::kFollow},
    {"SpaceToDepth", Rule::kFollow},
    {"Split", Rule::kFollow},
    {"Squeeze", Rule::kFollow},
    {"Tile", Rule::kFollow},
    {"Transpose", Rule::kFollow},
    {"Unsqueeze", Rule::kFollow},
    // Pooling, and normalizations whose statistics the kernels sum in float32.
    {"AveragePool", Rule::kFollow},
    {"BatchNormTrain", Rule::kFollow, 1, kGradloomDomain},
    {"BatchNormalization", Rule::kFollow, 1},
    {"GlobalAveragePool", Rule::kFollow},
    {"GlobalMaxPool", Rule::kFollow},
    {"MaxPool", Rule::kFollow},
    {"Resize", Rule::kFollow, 1},
};

const Row* FindRow(const Node& node) {
  for (const Row& row : kRows) {
    if (row.op == node.op && row.domain == node.domain) return &row;
  }
  return nullptr;
}

class Lowering {
 public:
  // `weights`: inputs of a body that are bound to trained parameters.
  Lowering(GraphBuilder& builder, DType low, const LossNodes& loss, std::set<ValueId> weights = {})
      : b_(builder), graph_(builder.graph()), low_(low), loss_(loss), weights_(std::move(weights)) {}

  void Run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      b_.set_origin(node.origin);
      b_.set_phase(node.phase);
      if (!IsOfLoss(node)) LowerBodies(node);
      if (const int inputs = LoweredInputs(node); inputs > 0) {
        Lower(std::move(node), inputs);
      } else {
        ForEachUse(node, [&](ValueId id) { Widen(id); });
        graph_.nodes.push_back(std::move(node));
      }
    }
    b_.set_origin("");
    b_.set_phase(Phase::kForward);
    for (ValueId id : std::vector<ValueId>(graph_.outputs)) Widen(id);
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      if (graph_.value(id).next_of != kNoValue) Widen(id);
    }
  }

 private:
  // The 16-bit form of a float32 value of the original graph.
  struct Lowered {
    ValueId id = kNoValue;
    bool made = false;   // produced by a node, not by a cast
    bool alone = false;  // the float32 value has no producer yet
  };

  bool IsFloat(ValueId id) const { return id != kNoValue && graph_.value(id).dtype == DType::kFloat32; }
  bool IsMade(ValueId id) const {
    const auto found = lowered_.find(id);
    return found != lowered_.end() && found->second.made;
  }

  bool IsOfLoss(const Node& node) const { return loss_.contains(node.id); }
  bool IsWeight(ValueId id) const { return graph_.value(id).role == Role::kParam || weights_.contains(id); }

  // Inputs and outputs of bodies stay float32.
  void LowerBodies(Node& node) {
    const auto carried = static_cast<size_t>(node.attributes.Int("carried", 0));
    for (Region& region : node.regions) {
      std::set<ValueId> weights;
      for (size_t i = carried; i < region.body->inputs.size(); ++i) {
        if (IsWeight(node.inputs[i + 1])) weights.insert(region.body->inputs[i]);
      }
      GraphBuilder inner(*region.body, b_.rules());
      const LossNodes none;  // this is a node of the model
      Lowering(inner, low_, none, std::move(weights)).Run();
    }
  }

  // Powers stay float32, and so do squares, which simplification has turned into products: in float16 a square overflows from 256 on, and
  // the mean of squares of a normalization has no more precision than they.
  static bool IsSquare(const Node& node) { return node.op == "Mul" && node.domain.empty() && node.inputs[0] == node.inputs[1]; }

  // Returns how many leading inputs of the node become 16-bit; 0 if it is unchanged.
  int LoweredInputs(const Node& node) {
    if (!node.regions.empty() || IsOfLoss(node) || IsSquare(node)) return 0;
    const Row* const row = FindRow(node);
    if (row == nullptr) return 0;
    bool any = false;
    for (size_t i = 0; i < node.inputs.size() && i < static_cast<size_t>(row->inputs); ++i) {
      const ValueId id = node.inputs[i];
      if (!IsFloat(id)) continue;
      const Role role = graph_.value(id).role;
      if (role == Role::kConst ? !Fits(id) : !IsWeight(id) && row->rule == Rule::kFollow && !IsMade(id)) return 0;
      any |= row->rule == Rule::kLower || IsMade(id);
    }
    return any ? row->inputs : 0;
  }

  // Whether no element of a constant overflows to infinity or underflows to (nearly) zero: masks and epsilons would lose their meaning.
  bool Fits(ValueId id) {
    const auto [known, fresh] = fits_.emplace(id, true);
    if (fresh) known->second = ElementsFit(id);
    return known->second;
  }

  bool ElementsFit(ValueId id) const {
    const Tensor* const data = graph_.data(id);
    if (data == nullptr) return true;
    const double largest = low_ == DType::kFloat16 ? 65504 : 3.3895313892515355e38, smallest = low_ == DType::kFloat16 ? 0x1p-14 : 0x1p-126;
    return std::ranges::all_of(data->as<float>(), [&](float x) {
      const double size = std::abs(static_cast<double>(x));
      return size == 0 || !std::isfinite(size) || (size >= smallest && size <= largest);
    });
  }

  void Lower(Node node, int inputs) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId& id = node.inputs[i];
      if (!IsFloat(id)) continue;
      if (i < static_cast<size_t>(inputs)) {
        id = LowOf(id);
      } else {
        Widen(id);
      }
    }
    const std::vector<ValueType> types = b_.rules().Infer(graph_, node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId id = node.outputs[i];
      if (id == kNoValue || types[i].dtype == graph_.value(id).dtype) continue;
      GRADLOOM_CHECK(IsFloat(id) && types[i].dtype == low_);
      node.outputs[i] = graph_.AddValue(NameOf(id), low_, Shape(graph_.value(id).shape), graph_.value(id).role);
      lowered_[id] = {.id = node.outputs[i], .made = true, .alone = true};
    }
    graph_.nodes.push_back(std::move(node));
  }

  std::string NameOf(ValueId id) const { return graph_.value(id).name + "/" + std::string(DTypeName(low_)); }

  ValueId LowOf(ValueId id) {
    const auto found = lowered_.find(id);
    if (found != lowered_.end()) return found->second.id;
    const ValueId cast = b_.Cast(id, low_);
    lowered_[id] = {.id = cast};
    return cast;
  }

  // Adds a producer for the float32 value if it has none.
  void Widen(ValueId id) {
    const auto found = lowered_.find(id);
    if (found == lowered_.end() || !found->second.alone) return;
    found->second.alone = false;
    Node cast{.op = "Cast", .inputs = {found->second.id}, .outputs = {id}, .phase = b_.phase()};
    cast.attributes.set("to", static_cast<int64_t>(DType::kFloat32));
    graph_.AddNode(std::move(cast));
  }

  GraphBuilder& b_;
  Graph& graph_;
  DType low_;
  const LossNodes& loss_;
  std::set<ValueId> weights_;
  std::map<ValueId, Lowered> lowered_;
  std::map<ValueId, bool> fits_;  // constants that have been looked at
};

}  // namespace

void LowerPrecision(GraphBuilder& builder, DType low, const LossNodes& loss) { Lowering(builder, low, loss).Run(); }

void AllowTf32(Graph& graph) {
  for (Node& node : graph.nodes) {
    const Op* const op = FindOp(node.domain, node.op);
    if (op != nullptr && op->has(kProduct) && graph.value(node.outputs[0]).dtype == DType::kFloat32)
      node.attributes.set("allow_tf32", int64_t{1});
  }
}

}  // namespace gradloom
