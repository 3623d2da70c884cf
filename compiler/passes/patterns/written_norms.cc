#include "compiler/passes/patterns/written_norms.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/ops/op.h"

namespace gradloom {
namespace {

constexpr char kRunning[] = "a running statistic of a decomposed normalization";
constexpr char kData[] = "a mean or standard deviation of the data, before the first layer";
constexpr char kPixels[] = "a pixel mean that is subtracted from an input";
constexpr double kMinPixel = 16;  // of 255; in no weight are all elements this large, before or after training

bool IsMove(const Node& node) { return ForwardsElements(node) || node.op == "Transpose"; }
bool IsSum(const Node& node) { return node.op == "Add" || node.op == "Sub"; }
bool IsProduct(const Node& node) { return node.op == "Mul" || node.op == "Div"; }

class Finder {
 public:
  Finder(const Graph& graph, const Uses& uses, const std::vector<bool>& constant) : graph_(graph), uses_(uses), constant_(constant) {
    scales_.assign(constant.size(), false);
    FindInputs();
    for (const Value& value : graph.values()) {
      if (IsVariance(value)) variances_.push_back(value.id);
    }
    for (const Node& node : graph.nodes) {
      const bool scales = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return id != kNoValue && Scales(id); });
      for (ValueId id : node.outputs) {
        if (scales && id != kNoValue && Fixed(id)) scales_[static_cast<size_t>(id)] = true;
      }
    }
  }

  const std::vector<ValueId>& variances() const { return variances_; }

  std::map<ValueId, std::string> Statistics() const {
    std::map<ValueId, std::string> found;
    for (ValueId id : variances_) found[id] = kRunning;
    for (const Value& value : graph_.values()) {
      if (IsTensor(value) && !found.contains(value.id) && IsMean(value.id)) found[value.id] = kRunning;
    }
    for (const Node& node : graph_.nodes) {
      MarkData(node, found);
      MarkPixels(node, found);
    }
    return found;
  }

 private:
  // A node that reads a value, directly or after data movement.
  struct Use {
    const Node* node;
    ValueId operand;  // the moved form of the value that it reads
    bool negated;
  };

  bool Fixed(ValueId id) const { return constant_[static_cast<size_t>(id)]; }
  bool Scales(ValueId id) const { return scales_[static_cast<size_t>(id)]; }
  int64_t Elements(ValueId id) const { return graph_.value(id).shape.elements(); }
  bool IsTensor(const Value& value) const { return value.role == Role::kConst && IsFloating(value.dtype) && value.shape.elements() > 1; }

  static ValueId Other(const Node& node, ValueId operand) { return node.inputs[node.inputs[0] == operand ? 1 : 0]; }

  std::vector<Use> UsesOf(ValueId id, bool negated = false) const {
    std::vector<Use> found;
    std::vector<std::pair<ValueId, bool>> open = {{id, negated}};
    while (!open.empty()) {
      const auto [value, sign] = open.back();
      open.pop_back();
      for (int position : uses_.consumers[static_cast<size_t>(value)]) {
        const Node& node = graph_.nodes[static_cast<size_t>(position)];
        if (node.op == "Shape" || node.op == "Size") continue;
        if ((IsMove(node) || node.op == "Neg") && node.inputs[0] == value) {
          open.emplace_back(node.outputs[0], sign != (node.op == "Neg"));
        } else {
          found.push_back({&node, value, sign});
        }
      }
    }
    return found;
  }

  template <typename F>
  bool AllUses(ValueId id, bool negated, F f) const {
    const std::vector<Use> all = UsesOf(id, negated);
    return !all.empty() && std::all_of(all.begin(), all.end(), f);
  }

  bool IsVariance(const Value& value) {
    const Tensor* data = IsTensor(value) ? graph_.data(value.id) : nullptr;
    if (data == nullptr) return false;
    std::vector<ValueId> roots;
    const bool all = AllUses(value.id, false, [&](const Use& use) {
      if (use.node->op != "Add" || !Fixed(use.node->outputs[0]) || Elements(Other(*use.node, use.operand)) != 1) return false;
      return AllUses(use.node->outputs[0], false, [&](const Use& root) {
        roots.push_back(root.node->outputs[0]);
        return root.node->op == "Sqrt" ||
               (root.node->op == "Pow" && root.operand == root.node->inputs[0] && Elements(root.node->inputs[1]) == 1);
      });
    });
    if (!all) return false;
    for (int64_t i = 0; i < data->elements(); ++i) {
      if (!(ElementAsDouble(data->view(), i) >= 0)) return false;
    }
    for (ValueId id : roots) scales_[static_cast<size_t>(id)] = true;
    return true;
  }

  bool IsMean(ValueId id) const {
    return AllUses(id, false, [&](const Use& use) {
      const Node& node = *use.node;
      if (IsSum(node)) {
        const bool subtracted = use.negated != (node.op == "Sub" && node.inputs[1] == use.operand);
        return subtracted && (IsScaled(node.outputs[0]) || (!use.negated && HasScaleAndBias(node.outputs[0], Elements(id))));
      }
      return IsProduct(node) && Fixed(node.outputs[0]) && Scales(Other(node, use.operand)) && !Scales(use.operand) &&
             AllUses(node.outputs[0], use.negated, [&](const Use& sum) {
               return IsSum(*sum.node) && sum.negated != (sum.node->op == "Sub" && sum.node->inputs[1] == sum.operand);
             });
    });
  }

  // Whether the only use of a value is scaling by a number computed from a running variance.
  bool IsScaled(ValueId id) const {
    return AllUses(id, false, [&](const Use& use) { return IsProduct(*use.node) && Scales(Other(*use.node, use.operand)); });
  }

  // Whether the only use of a value is one product with a constant of this many elements, followed by one sum with another.
  bool HasScaleAndBias(ValueId id, int64_t elements) const {
    const auto next = [&](const Use& use, bool kind) {
      return kind && use.node->inputs[0] == use.operand && Fixed(use.node->inputs[1]) && Elements(use.node->inputs[1]) == elements;
    };
    return !Fixed(id) && AllUses(id, false, [&](const Use& scale) {
      return next(scale, IsProduct(*scale.node)) &&
             AllUses(scale.node->outputs[0], false, [&](const Use& bias) { return next(bias, bias.node->op == "Add"); });
    });
  }

  // Finds the values that are inputs of the graph, apart from their layout and operations with scalars.
  void FindInputs() {
    inputs_.assign(static_cast<size_t>(graph_.num_values()), false);
    for (const Value& value : graph_.values()) {
      inputs_[static_cast<size_t>(value.id)] = uses_.ProducerOf(value.id) < 0 && value.role == Role::kInput;
    }
    for (const Node& node : graph_.nodes) {
      const bool number = (IsSum(node) || IsProduct(node)) && Fixed(node.inputs[1]) && Elements(node.inputs[1]) == 1;
      const bool chosen = node.op == "Gather" && Fixed(node.inputs[1]);  // reorders channels
      if (!number && !chosen && node.op != "Cast" && node.op != "Identity" && node.op != "Transpose") continue;
      for (ValueId id : node.outputs) {
        if (id != kNoValue) inputs_[static_cast<size_t>(id)] = IsInput(node.inputs[0]);
      }
    }
  }
  bool IsInput(ValueId id) const { return inputs_[static_cast<size_t>(id)]; }

  // Matches (input - mean) / deviation with one number per position along an axis. A learned grid has more axes than the data.
  void MarkData(const Node& node, std::map<ValueId, std::string>& found) const {
    if (node.op != "Sub" || !Fixed(node.inputs[1]) || Elements(node.inputs[1]) == 1 || !IsInput(node.inputs[0])) return;
    const Shape& shape = graph_.value(node.outputs[0]).shape;
    const int64_t elements = Elements(node.inputs[1]);
    const bool along_axis = std::any_of(shape.begin(), shape.end(), [&](int64_t extent) { return extent == elements; });
    if (!along_axis || shape != graph_.value(node.inputs[0]).shape) return;
    const std::vector<Use> all = UsesOf(node.outputs[0]);
    if (all.size() != 1 || !IsProduct(*all[0].node) || all[0].node->inputs[0] != all[0].operand) return;
    const ValueId scale = all[0].node->inputs[1];
    if (!Fixed(scale) || Elements(scale) != elements) return;
    MarkConstants(node.inputs[1], found);
    MarkConstants(scale, found);
  }

  // Matches input - mean without a scale: the means of 8-bit pixels, per channel or for a whole image, as Caffe's models subtract them.
  void MarkPixels(const Node& node, std::map<ValueId, std::string>& found) const {
    if (!IsSum(node)) return;
    for (const size_t i : {1u, 0u}) {
      const ValueId id = node.inputs[i], other = node.inputs[1 - i];
      const Value& value = graph_.value(id);
      const Tensor* data = IsTensor(value) && !found.contains(id) ? graph_.data(id) : nullptr;
      if (data == nullptr || (node.op == "Sub" && i == 0) || !IsInput(other)) continue;
      if (graph_.value(node.outputs[0]).shape != graph_.value(other).shape || UsesOf(id).size() != 1) continue;
      const double sign = node.op == "Sub" ? 1 : -1;
      bool all = true;
      for (int64_t k = 0; k < data->elements(); ++k) all = all && sign * ElementAsDouble(data->view(), k) >= kMinPixel;
      if (all) found.emplace(id, kPixels);
    }
  }

  void MarkConstants(ValueId id, std::map<ValueId, std::string>& found) const {
    std::set<ValueId> seen = {id};
    std::vector<ValueId> open = {id};
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      if (IsTensor(graph_.value(value))) found.emplace(value, kData);
      const Node* const producer = uses_.ProducingNode(graph_, value);
      if (producer == nullptr) continue;
      for (ValueId operand : producer->inputs) {
        if (operand != kNoValue && seen.insert(operand).second) open.push_back(operand);
      }
    }
  }

  const Graph& graph_;
  const Uses& uses_;
  const std::vector<bool>& constant_;
  std::vector<bool> scales_;  // computed from a running variance and constants
  std::vector<bool> inputs_;  // by value id: FindInputs
  std::vector<ValueId> variances_;
};

}  // namespace

std::vector<bool> ComputedFromConstants(const Graph& graph, Role constants) {
  std::vector<bool> constant(static_cast<size_t>(graph.num_values()), false);
  for (const Value& value : graph.values()) constant[static_cast<size_t>(value.id)] = value.role == Role::kConst || value.role == constants;
  for (const Node& node : graph.nodes) {
    bool all = node.regions.empty();
    ForEachUse(node, [&](ValueId id) { all &= constant[static_cast<size_t>(id)]; });
    const Op* op = FindOp(node.domain, node.op);
    if (op != nullptr && op->has(kRandom)) all = false;
    for (ValueId id : node.outputs) {
      if (id != kNoValue) constant[static_cast<size_t>(id)] = all;
    }
  }
  return constant;
}

std::map<ValueId, std::string> WrittenStatistics(const Graph& graph, const Uses& uses, const std::vector<bool>& computed_from_constants) {
  return Finder(graph, uses, computed_from_constants).Statistics();
}

int64_t CountWrittenNorms(const Graph& graph) {
  const Uses uses(graph);
  const std::vector<bool> constant = ComputedFromConstants(graph, Role::kParam);
  return static_cast<int64_t>(Finder(graph, uses, constant).variances().size());
}

}  // namespace gradloom
