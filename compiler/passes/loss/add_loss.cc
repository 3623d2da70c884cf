#include "compiler/passes/loss/add_loss.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>
#include <set>
#include <string_view>

#include "compiler/ops/gradients.h"
#include "compiler/ops/loss_rows.h"
#include "runtime/base/ignored_class.h"
#include "runtime/base/joined.h"

namespace gradloom {
namespace {

// cross_entropy of an output that is already a softmax.
constexpr std::string_view kOfProbabilities = "cross_entropy_of_probabilities";

// Advice for an output without a gradient, such as the class of the largest score: the floating-point value behind it.
std::string HelpOfChoice(const Graph& graph, ValueId output) {
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (std::find(node->outputs.begin(), node->outputs.end(), output) == node->outputs.end()) continue;
    if (node->inputs.empty() || node->inputs[0] == kNoValue) return "";
    const Value& from = graph.value(node->inputs[0]);
    if (IsFloating(from.dtype)) {
      return from.role == Role::kActivation
                 ? Escaped(node->op) + " computes it from '" + Escaped(from.name) + "' " + graph.type(node->inputs[0]).ToString() +
                       ": compare that with --outputs '" + Escaped(from.name) + "' and a loss of it"
                 : "";
    }
    output = node->inputs[0];
  }
  return "";
}

class LossBuilder {
 public:
  LossBuilder(GraphBuilder& builder, const LossTerm& term, LossOperands& operands)
      : b_(builder), term_(term), operands_(operands), given_(operands.Output(term.output, Where())), output_(given_) {
    if (term.reduction != "mean" && term.reduction != "sum" && !(term.type == "kl_div" && term.reduction == "batchmean")) {
      throw Error(ErrorCode::kConfig, "unknown reduction '" + Escaped(term.reduction) + "'", Where(), "use mean or sum");
    }
    if (!IsFloating(b_.dtype(output_))) {
      throw Error(
          ErrorCode::kType,
          "the output '" + Escaped(b_.graph().value(output_).name) + "' is " + b_.graph().type(output_).ToString() + ", not floating-point",
          Where(), HelpOfChoice(b_.graph(), output_));
    }
    CheckRange("label_smoothing", term.label_smoothing, term.label_smoothing >= 0 && term.label_smoothing <= 1, "from 0 to 1");
    CheckRange("beta", term.beta, term.beta >= 0, "at least 0");
    CheckRange("delta", term.delta, term.delta > 0, "above 0");
    CheckRange("q", term.quantile, term.quantile >= 0 && term.quantile <= 1, "from 0 to 1");
    CheckRange("alpha", term.alpha, term.alpha <= 1, "at most 1");
    CheckRange("gamma", term.gamma, term.gamma >= 0, "at least 0");
    output_ = InAtLeast32Bits(b_, given_);
  }

  ValueId Build() {
    const std::string& type = term_.type;
    if (type == "cross_entropy" || type == kOfProbabilities) return CrossEntropy();
    if (type == "nll") return Nll();
    if (type == "mse") return Reduce(Square(b_.Sub(output_, Target())));
    if (type == "l1") return Reduce(b_.Op("Abs", {b_.Sub(output_, Target())}));
    if (type == "smooth_l1") return Reduce(SmoothL1());
    if (type == "huber") return Reduce(Huber(b_.Sub(output_, Target()), term_.delta));
    if (type == "log_cosh") return Reduce(LogCosh());
    if (type == "quantile") return Reduce(Quantile());
    if (type == "poisson_nll") return Reduce(PoissonNll());
    if (type == "hinge") return Reduce(b_.Op("Relu", {b_.Sub(Scalar(1), b_.Mul(Target(), output_))}));
    if (type == "soft_margin") return Reduce(b_.Op("Softplus", {b_.Neg(b_.Mul(Target(), output_))}));
    if (type == "bce") return Reduce(BinaryCrossEntropy());
    if (type == "bce_with_logits") return Reduce(BinaryCrossEntropyWithLogits());
    if (type == "sigmoid_focal") return Reduce(SigmoidFocal());
    if (type == "kl_div") return KlDivergence();
    if (type == "output") return Reduce(output_);
    throw Error(ErrorCode::kConfig, "unknown loss '" + Escaped(type) + "'", "", "the losses are: " + Joined(LossTypes()));
  }

 private:
  std::string Where() const { return "loss " + Escaped(term_.type); }

  void CheckRange(const char* option, double value, bool within, const char* range) const {
    if (within) return;
    throw Error(ErrorCode::kConfig, std::string(option) + " must be " + range + ", got " + Attributes::ToString(value), Where());
  }

  ValueId Scalar(double value) { return b_.Scalar(value, b_.dtype(output_)); }
  ValueId Square(ValueId x) { return b_.Mul(x, x); }

  std::string OutputText() const { return "'" + Escaped(b_.graph().value(given_).name) + "' " + b_.shape(output_).ToString(); }

  ValueId Target(const ValueType& type, const std::string& wanted_by) {
    return operands_.Target(term_.TargetName(), type, Where(), wanted_by);
  }

  // In the file's type like the output, since it may also be an input of the model.
  ValueId Target() {
    const std::string wanted_by = "compared with the output " + OutputText() + ", element by element";
    return InAtLeast32Bits(b_, Target(b_.graph().type(given_), wanted_by));
  }

  // Sets terms of elements that are padding to 0, if the valid extents of the output are data-dependent.
  ValueId Counted(ValueId elements) {
    const ValueId counts = operands_.Counts(operands_.Extents(given_), b_.shape(elements));
    return counts == kNoValue ? elements : b_.Where(counts, elements, Scalar(0));
  }

  // Returns the number of valid elements along axes [first, last) of the output.
  ValueId CountOf(int first, int last) {
    const auto& extents = operands_.Extents(given_);
    int64_t known = 1;
    ValueId count = kNoValue;
    for (int axis = first; axis < last; ++axis) {
      const auto found = extents.find(axis);
      if (found == extents.end()) {
        known *= b_.shape(output_)[axis];
      } else {
        count = count == kNoValue ? found->second : b_.Mul(count, found->second);
      }
    }
    const ValueId factor = Scalar(static_cast<double>(known));
    return count == kNoValue ? factor : b_.Mul(b_.Cast(count, b_.dtype(output_)), factor);
  }

  // Reduces to the sum, or to the mean over all elements.
  ValueId Reduce(ValueId elements) {
    const ValueId sum = b_.ReduceSum(Counted(elements), {}, /*keepdims=*/false);
    return term_.reduction == "sum" ? sum : b_.Div(sum, CountOf(0, b_.shape(output_).rank()));
  }

  int ClassAxis() const {
    const Shape& shape = b_.shape(output_);
    const auto axis = NormalAxis(shape.rank() == 1 ? 0 : term_.class_axis, shape.rank());
    if (!axis || shape.rank() == 0) {
      throw Error(ErrorCode::kShape,
                  "the output '" + Escaped(b_.graph().value(given_).name) + "' " + shape.ToString() + " has no class axis " +
                      std::to_string(term_.class_axis),
                  Where());
    }
    return *axis;
  }

  // Returns the scores. For probabilities these are their logarithms, whose softmax they are; the lower bound is chosen so that its inverse
  // in the gradient is finite.
  ValueId Scores() {
    if (term_.type != kOfProbabilities) return output_;
    return b_.Op("Log", {b_.Op("Max", {output_, Scalar(1e-30)})});
  }

  // Scores and targets as rows, and the class weights.
  LossRows Rows() {
    const int axis = ClassAxis();
    const Shape shape = b_.shape(output_);
    Shape target_shape;
    for (int i = 0; i < shape.rank(); ++i) {
      if (i != axis) target_shape.push_back(shape[i]);
    }
    LossRows rows{.scores = FlattenClasses(b_, Scores(), axis), .axis = axis};
    rows.ignore_index = term_.ignore_index.value_or(kIgnoredClass);
    std::map<int, ValueId> extents;  // by axis of the target
    for (const auto& [at, count] : operands_.Extents(given_)) {
      if (at == axis || term_.probabilities) {
        throw Error(ErrorCode::kUnsupported,
                    "the extent of axis " + std::to_string(at) + " of the output " + OutputText() + " is data-dependent", Where(),
                    "use class indices as targets and a class axis of fixed extent");
      }
      extents.emplace(at < axis ? at : at - 1, count);
    }
    if (!term_.probabilities) {
      ValueId target = Target({DType::kInt64, target_shape}, "the classes of the output " + OutputText());
      const ValueId counts = operands_.Counts(extents, target_shape);
      if (counts != kNoValue) target = b_.Where(counts, target, b_.Scalar(static_cast<double>(rows.ignore_index), DType::kInt64));
      rows.target = b_.Reshape(target, Shape{target_shape.elements()});
    }
    if (!term_.class_weight.empty()) {
      if (static_cast<int64_t>(term_.class_weight.size()) != shape[axis]) {
        throw Error(ErrorCode::kConfig,
                    "got " + std::to_string(term_.class_weight.size()) + " class weights for " + std::to_string(shape[axis]) + " classes",
                    Where());
      }
      rows.class_weight = Vector(term_.class_weight);
    }
    return rows;
  }

  ValueId Vector(const std::vector<double>& values) {
    const Tensor tensor = Tensor::From<double>(values, Shape{static_cast<int64_t>(values.size())});
    return b_.Constant(Converted(tensor.view(), b_.dtype(output_)));
  }

  // (sum, weights, ...) -> the mean weighted by class, as in PyTorch, or the sum.
  ValueId Weighted(const std::vector<ValueId>& sums) { return term_.reduction == "sum" ? sums[0] : b_.Div(sums[0], sums[1]); }

  // -sum over the classes of w t' log p, with t' = (1 - smoothing) t + smoothing / C; the mean is over rows.
  ValueId CrossEntropyOfProbabilities() {
    if (term_.ignore_index) throw Error(ErrorCode::kConfig, "ignore_index needs class indices as targets, not probabilities", Where());
    const LossRows rows = Rows();
    const Shape shape = b_.shape(rows.scores);
    ValueId target = FlattenClasses(b_, Target(), rows.axis);
    if (term_.label_smoothing != 0) {
      target = b_.Add(b_.Mul(target, Scalar(1 - term_.label_smoothing)), Scalar(term_.label_smoothing / static_cast<double>(shape[1])));
    }
    if (rows.class_weight != kNoValue) target = b_.Mul(target, rows.class_weight);
    const ValueId terms = b_.Mul(target, b_.Op("LogSoftmax", {rows.scores}, {{"axis", int64_t{-1}}}));
    const ValueId sum = b_.Neg(b_.ReduceSum(terms, {}, /*keepdims=*/false));
    return term_.reduction == "sum" ? sum : b_.Div(sum, Scalar(static_cast<double>(shape[0])));
  }

  ValueId CrossEntropy() {
    if (term_.probabilities) return CrossEntropyOfProbabilities();
    const LossRows rows = Rows();
    return Weighted(b_.Ops("CrossEntropy", kGradloomDomain, {rows.scores, rows.target, rows.class_weight}, 3,
                           {{"ignore_index", rows.ignore_index}, {"label_smoothing", term_.label_smoothing}}));
  }

  ValueId Nll() {
    const LossRows rows = Rows();
    return Weighted(
        b_.Ops("Nll", kGradloomDomain, {rows.scores, rows.target, rows.class_weight}, 2, {{"ignore_index", rows.ignore_index}}));
  }

  // d^2 / 2 if |d| < delta, otherwise delta * (|d| - delta / 2).
  ValueId Huber(ValueId difference, double delta) {
    const ValueId magnitude = b_.Op("Abs", {difference});
    const ValueId inner = b_.Mul(Square(difference), Scalar(0.5));
    const ValueId outer = b_.Mul(b_.Sub(magnitude, Scalar(0.5 * delta)), Scalar(delta));
    return b_.Where(b_.Op("Less", {magnitude, Scalar(delta)}), inner, outer);
  }

  // The Huber loss divided by beta; l1 if beta is 0.
  ValueId SmoothL1() {
    const ValueId difference = b_.Sub(output_, Target());
    if (term_.beta == 0) return b_.Op("Abs", {difference});
    return b_.Mul(Huber(difference, term_.beta), Scalar(1 / term_.beta));
  }

  // log(cosh(d)) = |d| + log(1 + exp(-2 |d|)) - log(2), which does not overflow.
  ValueId LogCosh() {
    const ValueId magnitude = b_.Op("Abs", {b_.Sub(output_, Target())});
    return b_.Sub(b_.Add(magnitude, b_.Op("Softplus", {b_.Scale(magnitude, -2)})), Scalar(std::numbers::ln2));
  }

  // Koenker and Bassett, "Regression Quantiles", 1978: q d if the target is larger by d, otherwise (q - 1) d.
  ValueId Quantile() {
    const ValueId more = b_.Sub(Target(), output_);
    return b_.Op("Max", {b_.Scale(more, term_.quantile), b_.Scale(more, term_.quantile - 1)});
  }

  // Without the term of the target alone, as by default in PyTorch, and with its epsilon.
  ValueId PoissonNll() {
    const ValueId target = Target();
    if (term_.log_input) return b_.Sub(b_.Op("Exp", {output_}), b_.Mul(target, output_));
    return b_.Sub(output_, b_.Mul(target, b_.Op("Log", {b_.Add(output_, Scalar(1e-8))})));
  }

  // Lin et al., "Focal Loss for Dense Object Detection", 2017: bce_with_logits times (1 - p)^gamma, with p the probability of the target,
  // and times alpha for positives and 1 - alpha for negatives.
  ValueId SigmoidFocal() {
    const ValueId yes = Target(), no = b_.Sub(Scalar(1), yes), minus = b_.Neg(output_);
    const auto apply = [&](const char* op, ValueId x) { return b_.Op(op, {x}); };
    const ValueId entropy = b_.Add(b_.Mul(yes, apply("Softplus", minus)), b_.Mul(no, apply("Softplus", output_)));
    const ValueId wrong = b_.Add(b_.Mul(yes, apply("Sigmoid", minus)), b_.Mul(no, apply("Sigmoid", output_)));
    ValueId loss = entropy;
    if (term_.gamma == 2) {
      loss = b_.Mul(loss, Square(wrong));
    } else if (term_.gamma != 0) {
      // The derivative of a root is infinite at 0, where a sure answer is.
      const ValueId base = term_.gamma < 1 ? b_.Op("Max", {wrong, Scalar(1e-30)}) : wrong;
      loss = b_.Mul(loss, b_.Op("Pow", {base, Scalar(term_.gamma)}));
    }
    return term_.alpha < 0 ? loss : b_.Mul(loss, b_.Add(b_.Scale(yes, term_.alpha), b_.Scale(no, 1 - term_.alpha)));
  }

  // -(t log p + (1 - t) log(1 - p)) with logarithms clamped at -100 as in PyTorch.
  ValueId BinaryCrossEntropy() {
    const ValueId target = Target(), one = Scalar(1);
    return b_.Neg(b_.Add(b_.Mul(target, ClampedLog(output_)), b_.Mul(b_.Sub(one, target), ClampedLog(b_.Sub(one, output_)))));
  }

  // max(log p, -100), where probabilities below the normal numbers count as 0: their inverse, the gradient, could overflow.
  ValueId ClampedLog(ValueId p) {
    const ValueId least = Scalar(std::numeric_limits<float>::min());
    return b_.Where(b_.Op("Less", {p, least}), Scalar(-100), b_.Op("Log", {b_.Op("Max", {p, least})}));
  }

  // w t softplus(-x) + (1 - t) softplus(x), where w is the weight of positives. PyTorch's (1 - t) x + (1 + (w - 1) t) softplus(-x) is the
  // same, but its derivative by parts is a difference of numbers near 1 where the answer is a confident no.
  ValueId BinaryCrossEntropyWithLogits() {
    ValueId yes = Target();
    const ValueId no = b_.Sub(Scalar(1), yes);
    if (!term_.pos_weight.empty()) {
      const Shape& shape = b_.shape(output_);
      const auto weights = std::ssize(term_.pos_weight);
      if (weights != 1 && (shape.rank() == 0 || shape[shape.rank() - 1] != weights)) {
        throw Error(ErrorCode::kConfig,
                    "got " + std::to_string(weights) + " values of pos_weight for the output " + OutputText() +
                        ", expected one, or one for each element of its last axis",
                    Where());
      }
      yes = b_.Mul(yes, weights == 1 ? Scalar(term_.pos_weight[0]) : Vector(term_.pos_weight));
    }
    const auto softplus = [&](ValueId x) { return b_.Op("Softplus", {x}); };
    return b_.Add(b_.Mul(yes, softplus(b_.Neg(output_))), b_.Mul(no, softplus(output_)));
  }

  // t (log t - x), or 0 if t is 0; divided by the batch size.
  ValueId KlDivergence() {
    const ValueId target = Target();
    const ValueId positive = b_.Op("Greater", {target, Scalar(0)});
    const ValueId log_target = b_.Op("Log", {b_.Where(positive, target, Scalar(1))});
    const ValueId terms = b_.Sub(b_.Mul(target, log_target), b_.Mul(target, output_));
    const ValueId sum = b_.ReduceSum(Counted(terms), {}, /*keepdims=*/false);
    return term_.reduction == "sum" || b_.shape(output_).rank() == 0 ? sum : b_.Div(sum, CountOf(0, 1));
  }

  GraphBuilder& b_;
  const LossTerm& term_;
  LossOperands& operands_;
  ValueId given_;   // the output of the model
  ValueId output_;  // the same in at least 32 bits
};

// What `name` says of each term; a graph has the name of its file.
template <typename Name>
std::vector<std::string> NamesOf(std::span<const LossTerm> terms, const Name& name) {
  std::vector<std::string> names;
  for (const LossTerm& term : terms) {
    std::string text = name(term);
    if (term.graph != nullptr) {
      text = term.graph->name().substr(term.graph->name().rfind('/') + 1);
      if (text.ends_with(".onnx")) text.resize(text.size() - 5);
    }
    names.push_back(Escaped(text));
  }
  return names;
}

// A term that compares an output with a target of the same name says that the data has the name as well, to all terms: one may compare an
// auxiliary output with the same target.
void NameTargets(std::span<const LossTerm> terms, LossOperands& operands) {
  const std::vector<std::string> outputs = operands.OutputNames();
  for (const LossTerm& term : terms) {
    if (term.graph != nullptr || term.type == "output" || outputs.empty()) continue;
    const std::string& output = term.output.empty() ? outputs.front() : term.output;
    if (output == term.TargetName()) operands.NameTarget(output);
  }
}

bool Differ(const std::vector<std::string>& names) { return std::set<std::string>(names.begin(), names.end()).size() == names.size(); }

}  // namespace

std::vector<std::string> LossTypes() {
  return {"cross_entropy",
          std::string(kOfProbabilities),
          "nll",
          "mse",
          "l1",
          "smooth_l1",
          "huber",
          "log_cosh",
          "quantile",
          "poisson_nll",
          "hinge",
          "soft_margin",
          "bce",
          "bce_with_logits",
          "sigmoid_focal",
          "kl_div",
          "output",
          "algorithm"};
}

std::string LossTerm::TargetName() const { return target.empty() ? "target" : target; }

std::string LossTerm::ToString() const {
  if (type == "algorithm") return "algorithm(training_info=" + std::to_string(training_info) + ")";
  std::string text = type + "(" + Escaped(output) + (type == "output" ? "" : ", " + Escaped(TargetName())) + ")";
  if (graph != nullptr) {
    text = Escaped(graph->name().substr(graph->name().rfind('/') + 1)) + " " + graph->hash();
    for (const auto& [input, operand] : bindings) text += " " + Escaped(input) + "=" + Escaped(operand);
  }
  return weight == 1 ? text : text + "*" + Attributes::ToString(weight);
}

AddedLoss AddLoss(GraphBuilder& builder, std::span<const LossTerm> terms, int64_t batch, LossOperands& operands) {
  if (terms.empty())
    throw Error(ErrorCode::kConfig, "no loss is given", "", "give one, for example: --loss 'cross_entropy(OUTPUT, TARGET)'");
  NameTargets(terms, operands);
  AddedLoss added;
  for (size_t i = 0; i < terms.size(); ++i) {
    const LossTerm& term = terms[i];
    builder.set_origin(i == 0 ? "loss" : "loss" + std::to_string(i + 1));
    ValueId value = term.graph != nullptr ? AddLossGraph(builder, *term.graph, term.bindings, batch, operands)
                                          : LossBuilder(builder, term, operands).Build();
    value = InAtLeast32Bits(builder, value);
    if (term.weight != 1) value = builder.Scale(value, term.weight);
    if (terms.size() > 1) {
      if (i > 0) value = builder.Cast(value, builder.dtype(added.sum));
      added.terms.push_back(value);
      builder.set_origin(kLossSum);
    }
    added.sum = i == 0 ? value : builder.Add(added.sum, value);
  }
  builder.set_origin("");
  return added;
}

std::vector<std::string> LossTermFetches(std::span<const LossTerm> terms, std::vector<std::string> outputs) {
  if (terms.size() < 2) return {};
  const auto output = [&](const LossTerm& term) { return !term.output.empty() ? term.output : outputs.empty() ? "" : outputs.front(); };
  std::vector<std::string> names = NamesOf(terms, output);
  const std::vector<std::string> others[] = {NamesOf(terms, [](const LossTerm& term) { return term.type; }),
                                             NamesOf(terms, [](const LossTerm& term) { return term.TargetName(); })};
  if (!Differ(names)) {
    const auto* const found = std::find_if(std::begin(others), std::end(others), Differ);
    if (found != std::end(others)) names = *found;
  }
  for (std::string& name : names) {
    const std::string fetch = "loss/" + name;
    name = fetch;
    for (int number = 2; std::find(outputs.begin(), outputs.end(), name) != outputs.end(); ++number)
      name = fetch + "_" + std::to_string(number);
    outputs.push_back(name);
  }
  return names;
}

}  // namespace gradloom
