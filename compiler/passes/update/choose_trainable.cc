#include "compiler/passes/update/choose_trainable.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/passes/patterns/fixed_tensors.h"
#include "compiler/passes/patterns/written_norms.h"
#include "runtime/base/listing.h"
#include "runtime/base/name_pattern.h"

namespace gradloom {
namespace {

// The operands of each operator that are weights if they are constant.
const std::map<std::string, std::set<int>>& WeightOperands() {
  static const std::map<std::string, std::set<int>> table = {
      {"Conv", {1, 2}},
      {"ConvTranspose", {1, 2}},
      {"DeformConv", {1, 3}},
      {"Gemm", {0, 1, 2}},
      {"MatMul", {0, 1}},
      {"Einsum", {0, 1, 2, 3}},
      {"Gather", {0}},
      {"GatherND", {0}},
      {"GatherElements", {0}},
      {"PRelu", {1}},
      {"GridSample", {0}},
      {"LSTM", {0, 1, 2, 3, 5, 6, 7}},
      {"GRU", {0, 1, 2, 3, 5}},
      {"RNN", {0, 1, 2, 3, 5}},
      {"BatchNormalization", {1, 2}},
      {"LayerNormalization", {1, 2}},
      {"GroupNormalization", {1, 2}},
      {"InstanceNormalization", {1, 2}},
      {"RMSNormalization", {1}},
      {"Attention", {0, 1, 2}},
  };
  return table;
}

// In sums and products a constant may be a bias or a scale, or a mask or a fixed number.
bool IsSum(const std::string& op) {
  return op == "Add" || op == "Sub" || op == "Sum" || op == "Concat" || op == "Expand" || op == "ScatterND";
}
bool IsProduct(const std::string& op) { return op == "Mul" || op == "Div"; }

// Operators whose constant operands are usually numbers from the code: bases, exponents, bounds and replacement values.
bool ReadsNumbers(const Node& node) { return node.op == "Pow" || node.op == "Max" || node.op == "Min" || node.op == "Where"; }

// A constant of the file, followed through operators that only read constants. What its elements say is found once, however many nodes read
// it: a mask may be large.
class Origin {
 public:
  Origin(const Tensor& tensor, bool is_single, bool is_attribute) : data(tensor), single(is_single), attribute(is_attribute) {}

  bool LooksLikeMask(bool product) const {
    std::optional<bool>& known = mask_[product ? 1 : 0];
    if (!known) known = gradloom::LooksLikeMask(data, product);
    return *known;
  }
  bool IsSinusoidTable() const {
    if (!sinusoid_) sinusoid_ = gradloom::IsSinusoidTable(data);
    return *sinusoid_;
  }

  const Tensor& data;
  const bool single;     // a single element, which may be a number from the code
  const bool attribute;  // named like an attribute of the module, in a file whose attributes include no numbers from the code

 private:
  mutable std::optional<bool> mask_[2], sinusoid_;
};

// Patterns, most of which may be names.
class Patterns {
 public:
  explicit Patterns(const std::vector<std::string>& patterns) {
    for (const std::string& pattern : patterns) {
      if (IsName(pattern)) {
        names_.insert(pattern);
      } else {
        patterns_.push_back(pattern);
      }
    }
  }

  static bool IsName(const std::string& pattern) { return pattern.find_first_of("*?") == std::string::npos; }
  bool Match(const std::string& name) const { return names_.contains(name) || MatchesAnyPattern(patterns_, name); }

 private:
  std::set<std::string> names_;
  std::vector<std::string> patterns_;
};

class Chooser {
 public:
  explicit Chooser(const Graph& graph, bool attributes = false)
      : graph_(graph), uses_(graph), constant_(ComputedFromConstants(graph)), attributes_(attributes) {
    reaches_.assign(static_cast<size_t>(graph.num_values()), false);
    MarkReaching();
    for (const Value& value : graph.values()) {
      const Tensor* const data = value.role == Role::kConst ? graph.data(value.id) : nullptr;
      if (data != nullptr) tables_.Add(*data);
    }
  }

  // Whether the value is trained; `why` gets the reason for or against.
  bool Trained(ValueId id, std::string& why) const {
    const Value& value = graph_.value(id);
    const Tensor& data = *graph_.data(id);
    if (!reaches_[static_cast<size_t>(id)]) {
      why = "no differentiable path to an output";
      return false;
    }
    why = FixedByName(value.name);
    if (why.empty() && IsScaleOfIntegers(value.name)) why = "the scale of a tensor that is quantized";
    if (!why.empty()) return false;
    if (IsSummingWindow(data) && !IsModulePath(value.name) && OnlyFilters(id)) {
      why = "all ones: a summing window";
      return false;
    }
    // Positions that probabilities are summed over (distribution focal loss): in YOLO a filter without a gradient, or a buffer.
    if (IsCounting(data) && (attributes_ || (IsModulePath(value.name) && OnlyFilters(id)))) {
      why = "consecutive integers from 0";
      return false;
    }
    why = "not used as a weight";
    const bool attribute = attributes_ && IsAttribute(value.name);
    return Walk(id, {data, value.shape.elements() == 1 && !attribute && !IsModulePath(value.name), attribute}, why);
  }

  std::map<ValueId, std::string> Statistics() const { return WrittenStatistics(graph_, uses_, constant_); }

 private:
  // onnxruntime's quantizer makes three of a weight w: w_quantized, w_scale and w_zero_point.
  bool IsScaleOfIntegers(const std::string& name) const {
    constexpr std::string_view kScale = "_scale";
    if (!name.ends_with(kScale)) return false;
    const ValueId zero = graph_.Find(name.substr(0, name.size() - kScale.size()) + "_zero_point");
    return zero != kNoValue && graph_.value(zero).role == Role::kConst && !IsFloating(graph_.value(zero).dtype);
  }

  // Whether a value is only used as a filter of convolutions, directly or with its axes rearranged.
  bool OnlyFilters(ValueId id) const {
    static const std::set<std::string> moves = {"Expand", "Identity", "Reshape", "Squeeze", "Unsqueeze"};
    for (std::vector<ValueId> open{id}; !open.empty();) {
      const ValueId at = open.back();
      open.pop_back();
      for (int position : uses_.consumers[static_cast<size_t>(at)]) {
        const Node& node = graph_.nodes[static_cast<size_t>(position)];
        if (moves.contains(node.op) && node.inputs[0] == at) {
          open.push_back(node.outputs[0]);
        } else if (node.op != "Conv" || node.inputs[1] != at) {
          return false;
        }
      }
    }
    return true;
  }

  // Marks values with a path to an output on which every operator passes gradients.
  void MarkReaching() {
    for (ValueId id : graph_.outputs) reaches_[static_cast<size_t>(id)] = IsFloating(graph_.value(id).dtype);
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      const Op* op = FindOp(node.domain, node.op);
      if (op != nullptr && op->has(kNoGradient)) continue;
      const bool reaches = std::any_of(node.outputs.begin(), node.outputs.end(),
                                       [&](ValueId id) { return id != kNoValue && reaches_[static_cast<size_t>(id)]; });
      if (!reaches) continue;
      ForEachUse(node, [&](ValueId id) {
        if (IsFloating(graph_.value(id).dtype)) reaches_[static_cast<size_t>(id)] = true;
      });
    }
  }

  // Whether something that is made of the constant `first` by operators that only read constants is used as a weight. Not a recursion: a
  // file may have any number of such operators after each other.
  bool Walk(ValueId first, const Origin& origin, std::string& why) const {
    struct Use {
      ValueId id;
      int reader;  // a position in graph.nodes; -1 stands for all readers
    };
    std::set<ValueId> seen;
    std::vector<Use> open{{first, -1}};  // the last one is next
    while (!open.empty()) {
      const auto [id, reader] = open.back();
      open.pop_back();
      if (reader < 0) {
        if (!seen.insert(id).second) continue;
        const std::vector<int>& readers = uses_.consumers[static_cast<size_t>(id)];
        for (size_t i = readers.size(); i-- > 0;) open.push_back({id, readers[i]});
        continue;
      }
      const Node& node = graph_.nodes[static_cast<size_t>(reader)];
      switch (UseIn(node, id, origin, why)) {
        case UseKind::kWeight: return true;
        case UseKind::kOther: break;
        case UseKind::kPassedOn:
          for (size_t i = node.outputs.size(); i-- > 0;) {
            if (node.outputs[i] != kNoValue) open.push_back({node.outputs[i], -1});
          }
      }
    }
    return false;
  }

  // kPassedOn: the node makes other constants of it.
  enum class UseKind { kWeight, kPassedOn, kOther };

  UseKind UseIn(const Node& node, ValueId id, const Origin& origin, std::string& why) const {
    const Op* op = FindOp(node.domain, node.op);
    if (op != nullptr && op->has(kNoGradient)) return UseKind::kOther;
    const auto reaches = [&](ValueId out) { return out != kNoValue && reaches_[static_cast<size_t>(out)]; };
    if (std::none_of(node.outputs.begin(), node.outputs.end(), reaches)) return UseKind::kOther;
    if ((node.op == "DequantizeLinear" || node.op == "QuantizeLinear") && node.inputs[1] == id) {
      why = "a scale of " + Describe(node);
      return UseKind::kOther;
    }
    const bool fixed = std::all_of(node.outputs.begin(), node.outputs.end(),
                                   [&](ValueId out) { return out == kNoValue || constant_[static_cast<size_t>(out)]; });
    if (fixed && (node.op == "Sin" || node.op == "Cos")) {
      why = "frequencies of " + Describe(node);
      return UseKind::kOther;
    }
    if (fixed && node.op == "Mul" && origin.LooksLikeMask(true)) {
      why = "a mask in " + Describe(node);
      return UseKind::kOther;
    }
    if (fixed) return UseKind::kPassedOn;
    return ActsAsWeight(node, id, origin, why) ? UseKind::kWeight : UseKind::kOther;
  }

  // Whether a body uses its input `position` as a weight.
  static bool ActsAsWeightIn(const Graph& body, size_t position, const Origin& origin, std::string& why) {
    const Chooser inside(body);
    const ValueId id = body.inputs[position];
    if (!inside.reaches_[static_cast<size_t>(id)]) return false;
    return inside.Walk(id, origin, why);
  }

  bool ActsAsWeight(const Node& node, ValueId id, const Origin& origin, std::string& why) const {
    const Tensor& data = origin.data;
    for (const Region& region : node.regions) {
      for (size_t i = 1; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == id && ActsAsWeightIn(*region.body, i - 1, origin, why)) return true;
      }
    }
    if (!node.regions.empty()) return false;
    const auto operands = WeightOperands().find(node.op);
    const bool bias_of_scores = node.op == "Attention" && node.inputs.size() > 3 && node.inputs[3] == id;
    if (operands != WeightOperands().end() && !bias_of_scores) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != id || !operands->second.contains(static_cast<int>(i))) continue;
        // Initial states and inputs of a recurrent layer that are all zero are not learned.
        const bool recurrent = node.op == "LSTM" || node.op == "GRU" || node.op == "RNN";
        if (recurrent && (i == 0 || i == 5 || i == 6) && AllZero(data)) {
          why = std::string(i == 0 ? "a zero input of " : "a zero initial state of ") + Describe(node);
          continue;
        }
        if (origin.single && data.shape().rank() == 0) {
          why = "a single number in " + Describe(node);
          continue;
        }
        if (origin.IsSinusoidTable()) {
          why = "a table of sines and cosines in " + Describe(node);
          continue;
        }
        why = "a weight of " + Describe(node);
        return true;
      }
      if (node.op == "BatchNormalization") why = "a running statistic of " + Describe(node);
      return false;
    }
    // What ScatterElements writes to may be a learned memory; what it writes is mostly a fixed number.
    const bool memory = node.op == "ScatterElements" && node.inputs[0] == id;
    const bool sum = memory || bias_of_scores || IsSum(node.op), product = IsProduct(node.op);
    if (!sum && !product) {
      // A trained base or exponent may be a single number; trained bounds and replacement values have several elements.
      const bool trained =
          origin.attribute && ReadsNumbers(node) && (node.op == "Pow" || data.elements() > 1) && !origin.LooksLikeMask(false);
      why = (trained ? "an attribute of the module in " : "a fixed operand of ") + Describe(node);
      return trained;
    }
    // A number that scales the result of a table lookup is the square root of its width, even if it is named like an attribute of the
    // module.
    if ((origin.single && !(sum && data.shape().rank() > 0 && IsOnlyFeature(node, id))) ||
        (product && data.elements() == 1 && ScalesLookup(node))) {
      why = "a single number in " + Describe(node);
      return false;
    }
    if (origin.LooksLikeMask(product)) {
      why = "a mask in " + Describe(node);
      return false;
    }
    if (origin.IsSinusoidTable() || (product && tables_.HasOtherHalf(data))) {
      why = "a table of sines and cosines in " + Describe(node);
      return false;
    }
    why = (sum ? "a bias in " : "a scale in ") + Describe(node);
    return true;
  }

  // Whether a sum adds `id` to the single feature that a layer computes: then it is the bias of a layer without one.
  bool IsOnlyFeature(const Node& node, ValueId id) const {
    // Keras crops what a transposed convolution gives before it adds the bias.
    static const std::set<std::string> moves = {"Cast", "Identity", "Pad", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"};
    if (node.inputs.size() != 2) return false;
    ValueId other = node.inputs[node.inputs[0] == id ? 1 : 0];
    const Node* producer = uses_.ProducingNode(graph_, other);
    while (producer != nullptr && moves.contains(producer->op)) {
      other = producer->inputs[0];
      producer = uses_.ProducingNode(graph_, other);
    }
    if (producer == nullptr) return false;
    const Node& layer = *producer;
    if (layer.op != "MatMul" && layer.op != "Gemm" && layer.op != "Conv" && layer.op != "ConvTranspose") return false;
    const Shape& shape = graph_.value(other).shape;
    const int axis = layer.op == "MatMul" ? shape.rank() - 1 : 1;
    return constant_[static_cast<size_t>(layer.inputs[1])] && axis < shape.rank() && shape[axis] == 1;
  }

  bool ScalesLookup(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      const Node* const producer = uses_.ProducingNode(graph_, id);
      return producer != nullptr && producer->op == "Gather";
    });
  }

  const Graph& graph_;
  const Uses uses_;
  const std::vector<bool> constant_;  // computed only from constants
  const bool attributes_;
  std::vector<bool> reaches_;
  RotationTables tables_;  // all constants
};

std::string InitializerNames(const Graph& graph) {
  Listing names(12);
  for (const Value& value : graph.values()) {
    if (value.role == Role::kConst) names.Add(Escaped(value.name, 80));
  }
  return names.text();
}

void CheckPatterns(const Graph& graph, const std::vector<std::string>& patterns, const char* flag) {
  for (const std::string& pattern : patterns) {
    const auto is_matched = [&](const Value& value) { return value.role == Role::kConst && MatchesPattern(pattern, value.name); };
    const ValueId named = Patterns::IsName(pattern) ? graph.Find(pattern) : kNoValue;
    const bool fits = Patterns::IsName(pattern) ? named != kNoValue && is_matched(graph.value(named))
                                                : std::any_of(graph.values().begin(), graph.values().end(), is_matched);
    if (!fits) {
      throw Error(ErrorCode::kConfig, std::string(flag) + " '" + Escaped(pattern) + "' matches no initializer of the model", "",
                  "the model has: " + InitializerNames(graph));
    }
  }
}

}  // namespace

TrainableChoice ChooseTrainable(Graph& graph, const TrainableOptions& options) {
  CheckPatterns(graph, options.trainable, "--trainable");
  CheckPatterns(graph, options.freeze, "--freeze");
  if (options.only) CheckPatterns(graph, *options.only, "trainable initializer");
  const Patterns trainable(options.trainable), freeze(options.freeze);
  const Chooser chooser(graph, options.attributes);
  const std::map<ValueId, std::string> statistics = chooser.Statistics();
  const std::set<std::string> only =
      options.only ? std::set<std::string>(options.only->begin(), options.only->end()) : std::set<std::string>();
  struct Decision {
    ValueId id;
    bool trained;
    std::string why;
    bool asked;  // by name (--trainable, or TrainableOptions::only)
  };
  const auto is_node = [&](const std::string& name) { return options.node_constants.contains(name) || IsCalledConstant(name); };
  std::vector<Decision> decisions;
  bool initializers = false;
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const Value& value = graph.value(id);
    if (value.role != Role::kConst || value.derived || !IsFloating(value.dtype) || graph.data(id) == nullptr) continue;
    Decision decision{id, false, "", false};
    if (options.only) {
      decision.trained = decision.asked = only.contains(value.name);
      decision.why = decision.trained ? "named" : "not named";
    } else if (!trainable.Match(value.name) && freeze.Match(value.name)) {
      decision.why = "frozen by --freeze";
    } else {
      decision.trained = chooser.Trained(id, decision.why);
      if (const auto statistic = statistics.find(id); decision.trained && statistic != statistics.end()) {
        decision.trained = false;
        decision.why = statistic->second;
      }
      decision.asked = trainable.Match(value.name);
      if (!decision.trained && decision.asked) {
        decision.trained = true;
        decision.why = "named by --trainable";
      }
    }
    initializers |= decision.trained && !is_node(value.name);
    decisions.push_back(std::move(decision));
  }
  TrainableChoice choice;
  for (Decision& decision : decisions) {
    const std::string& name = graph.value(decision.id).name;
    if (decision.trained && !decision.asked && initializers && is_node(name)) {
      decision.trained = false;
      decision.why = options.node_constants.contains(name) ? "a Constant node in a model whose weights are initializers"
                                                           : "named like a Constant node in a model whose weights are initializers";
    }
    (decision.trained ? choice.trained : choice.frozen).emplace_back(name, decision.why);
    if (decision.trained) choice.parameters.push_back(decision.id);
  }
  // Roles are set last, because the analysis above depends on them.
  for (ValueId id : choice.parameters) graph.value(id).role = Role::kParam;
  return choice;
}

}  // namespace gradloom
