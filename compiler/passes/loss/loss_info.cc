#include "compiler/passes/loss/loss_info.h"

#include <algorithm>
#include <string_view>

#include "compiler/ops/op.h"
#include "runtime/base/ignored_class.h"
#include "runtime/base/tensor.h"

namespace gradloom {
namespace {

constexpr std::string_view kScores = "SoftmaxCrossEntropyLoss", kLogProbabilities = "NegativeLogLikelihoodLoss";

bool IsClassLoss(const Node& node) { return node.domain.empty() && (node.op == kScores || node.op == kLogProbabilities); }

class Description {
 public:
  Description(const Graph& graph, std::span<const LossTerm> terms, ValueId loss, const std::map<ValueId, std::string>& names)
      : graph_(graph), terms_(terms), loss_(loss), names_(names), uses_(graph) {}

  std::vector<LossInfo> Run() const {
    std::vector<LossInfo> infos;
    bool inside = false;  // whether a loss is computed by nodes of a file
    for (const LossTerm& term : terms_) {
      if (term.graph == nullptr && term.type != "output" && term.type != "algorithm") {
        infos.push_back(OfTerm(term));
      } else {
        inside = true;
      }
    }
    for (const Node& node : graph_.nodes) {
      if (!inside || !IsClassLoss(node)) continue;
      if (LossInfo info = OfNode(node); !info.target.empty()) infos.push_back(std::move(info));
    }
    return infos;
  }

 private:
  std::string NameOf(ValueId id) const {
    const auto named = names_.find(id);
    return named != names_.end() ? named->second : graph_.value(id).name;
  }

  const Node* Producer(ValueId id) const { return uses_.ProducingNode(graph_, id); }

  LossInfo OfTerm(const LossTerm& term) const {
    LossInfo info{.type = term.type, .output = term.output, .target = term.TargetName()};
    if (info.output.empty() && !graph_.outputs.empty()) info.output = NameOf(graph_.outputs.front());
    info.classes = TargetIsClass(term);
    info.class_axis = term.class_axis;
    info.ignore_index = term.ignore_index;
    info.class_weight = term.class_weight;
    info.mean = info.classes && terms_.size() == 1 && term.reduction == "mean";
    return info;
  }

  LossInfo OfNode(const Node& node) const {
    LossInfo info{.type = node.op, .classes = true};
    const ValueId labels = Labels(node.inputs[1]);
    if (labels == kNoValue) return {};
    info.target = NameOf(labels);
    if (const auto [output, axis] = Scores(node.inputs[0], node.op == kLogProbabilities); output != kNoValue) {
      info.output = NameOf(output);
      info.class_axis = axis;
    }
    if (node.attributes.has("ignore_index")) info.ignore_index = IgnoredClassOf(node.attributes);
    const ValueId weights = node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
    const Tensor* const weight = weights == kNoValue ? nullptr : graph_.data(weights);
    for (int64_t i = 0; weight != nullptr && i < weight->elements(); ++i) info.class_weight.push_back(ElementAsDouble(weight->view(), i));
    const bool weights_known = weights == kNoValue || weight != nullptr;
    info.mean = weights_known && terms_.size() == 1 && node.attributes.String("reduction", "mean") == "mean" && IsWholeLoss(node);
    return info;
  }

  // The feed whose elements these are, in the same order; kNoValue if there is none.
  ValueId Labels(ValueId id) const {
    while (true) {
      if (std::find(graph_.inputs.begin(), graph_.inputs.end(), id) != graph_.inputs.end()) return id;
      const Node* const node = Producer(id);
      if (node == nullptr || !(KeepsElements(*node) || node->op == "Cast")) return kNoValue;
      id = node->inputs[0];
    }
  }

  struct Place {
    ValueId output = kNoValue;
    int axis = 1;
  };

  // The output of the model whose elements these scores are, in another order or shape, and its axis of the classes.
  Place Scores(ValueId id, bool logs) const {
    for (int axis = 1; axis >= 0;) {
      if (std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end()) return {id, axis};
      const Node* const node = Producer(id);
      if (node == nullptr || node->inputs.empty()) break;
      if (node->op == "Transpose") {
        std::vector<int64_t> perm = node->attributes.Ints("perm");
        axis = perm.empty() ? graph_.value(id).shape.rank() - 1 - axis : static_cast<int>(perm[static_cast<size_t>(axis)]);
      } else if (KeepsElements(*node) && node->op != "Identity") {
        axis = AxisBefore(graph_.value(id).shape, axis, graph_.value(node->inputs[0]).shape);
      } else if (node->op != "Identity" && node->op != "Cast" && !(logs && node->op == "LogSoftmax")) {
        break;
      }
      id = node->inputs[0];
    }
    return {};
  }

  // The axis of `from` that a reshape turned into this axis of `to`, or -1.
  static int AxisBefore(const Shape& to, int axis, const Shape& from) {
    const auto before = [](const Shape& shape, int end) {
      int64_t elements = 1;
      for (int i = 0; i < end; ++i) elements *= shape[i];
      return elements;
    };
    for (int i = 0; i < from.rank(); ++i) {
      if (from[i] == to[axis] && before(from, i) == before(to, axis)) return i;
    }
    return -1;
  }

  // Whether the loss is this node's result, times a constant at most.
  bool IsWholeLoss(const Node& node) const {
    for (ValueId id = loss_; id != kNoValue;) {
      if (id == node.outputs[0]) return true;
      const Node* const producer = Producer(id);
      if (producer == nullptr || graph_.value(id).shape.elements() != 1) return false;
      ValueId only = kNoValue;
      for (const ValueId input : producer->inputs) {
        if (input == kNoValue || graph_.data(input) != nullptr) continue;
        if (only != kNoValue || graph_.value(input).shape.elements() != 1) return false;
        only = input;
      }
      id = only;
    }
    return false;
  }

  const Graph& graph_;
  const std::span<const LossTerm> terms_;
  const ValueId loss_;
  const std::map<ValueId, std::string>& names_;
  const Uses uses_;
};

}  // namespace

bool TargetIsClass(const LossTerm& term) {
  return ((term.type == "cross_entropy" || term.type == "cross_entropy_of_probabilities") && !term.probabilities) || term.type == "nll";
}

std::vector<LossInfo> LossInfosOf(const Graph& graph, std::span<const LossTerm> terms, ValueId loss,
                                  const std::map<ValueId, std::string>& names) {
  return Description(graph, terms, loss, names).Run();
}

}  // namespace gradloom
