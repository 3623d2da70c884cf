#include "compiler/passes/update/add_optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "compiler/passes/schedule/program_plan.h"
#include "compiler/passes/update/step_params.h"
#include "runtime/base/joined.h"
#include "runtime/base/listing.h"
#include "runtime/base/name_pattern.h"
#include "runtime/base/update_form.h"
#include "runtime/plan/average_state.h"

namespace gradloom {
namespace {

// The operator and states of one type of optimizer.
struct Rule {
  std::string op;
  std::vector<std::string> states;
  Attributes attributes;
};

[[noreturn]] void Refuse(const std::string& what) {
  throw Error(ErrorCode::kConfig, "optimizer: " + what, "", "see: gradloom train --help");
}

double Beta2Or(const OptimizerOptions& o, double absent) { return o.beta2 < 0 ? absent : o.beta2; }
double EpsOr(const OptimizerOptions& o, double absent) { return o.eps < 0 ? absent : o.eps; }

// `op`: an operator with the two moments of Adam.
Rule MomentsRule(const char* op, const OptimizerOptions& o, double eps = 1e-8) {
  return {op, {"exp_avg", "exp_avg_sq"}, {{"beta1", o.beta1}, {"beta2", Beta2Or(o, 0.999)}, {"eps", EpsOr(o, eps)}}};
}

Rule AdamRule(const OptimizerOptions& o, bool decoupled) {
  Rule rule = MomentsRule("Adam", o);
  rule.attributes.set("decoupled", int64_t{decoupled});
  if (o.amsgrad) rule.states.push_back("max_exp_avg_sq");
  return rule;
}

Rule NAdamRule(const OptimizerOptions& o) {
  Rule rule = MomentsRule("NAdam", o);
  rule.attributes.set("momentum_decay", o.momentum_decay);
  return rule;
}

Rule SgdRule(const OptimizerOptions& o, bool nesterov) {
  Rule rule{"Sgd", {}, {}};
  if (o.momentum == 0) {
    if (nesterov) Refuse("nesterov needs momentum");
    return rule;
  }
  rule.states = {"momentum_buffer"};
  rule.attributes = {{"momentum", o.momentum}, {"dampening", o.dampening}, {"nesterov", int64_t{nesterov}}};
  return rule;
}

Rule RmsPropRule(const OptimizerOptions& o, double eps) {
  Rule rule{"RmsProp", {"square_avg"}, {{"alpha", o.alpha}, {"eps", eps}, {"momentum", o.momentum}, {"centered", int64_t{o.centered}}}};
  if (o.momentum != 0) rule.states.push_back("momentum_buffer");
  if (o.centered) rule.states.push_back("grad_avg");
  return rule;
}

Rule RuleOf(const OptimizerOptions& o) {
  if (o.type == "sgd" || o.type == "momentum") return SgdRule(o, o.nesterov);
  if (o.type == "nesterov") return SgdRule(o, true);
  if (o.type == "adam") return AdamRule(o, false);
  if (o.type == "adamw") return AdamRule(o, true);
  if (o.type == "nadam") return NAdamRule(o);
  if (o.type == "radam") return MomentsRule("RAdam", o);
  if (o.type == "rmsprop") return RmsPropRule(o, EpsOr(o, 1e-8));
  if (o.type == "adagrad") return {"Adagrad", {"sum"}, {{"lr_decay", o.lr_decay}, {"eps", EpsOr(o, 1e-10)}}};
  if (o.type == "adadelta") return {"Adadelta", {"square_avg", "acc_delta"}, {{"rho", o.rho}, {"eps", EpsOr(o, 1e-6)}}};
  if (o.type == "adamax")
    return {"Adamax", {"exp_avg", "exp_inf"}, {{"beta1", o.beta1}, {"beta2", Beta2Or(o, 0.999)}, {"eps", EpsOr(o, 1e-8)}}};
  if (o.type == "lamb") return MomentsRule("LambDirection", o, 1e-6);
  if (o.type == "lion") return {"Lion", {"exp_avg"}, {{"beta1", o.beta1}, {"beta2", Beta2Or(o, 0.99)}}};
  throw Error(ErrorCode::kConfig, "unknown optimizer '" + Escaped(o.type) + "'", "", "the optimizers are: " + Joined(OptimizerTypes()));
}

void CheckRanges(const OptimizerOptions& o) {
  const auto check = [](bool good, const char* what) {
    if (!good) Refuse(what);
  };
  check(std::isfinite(o.lr) && o.lr >= 0, "the learning rate must be finite and at least 0");
  check(std::isfinite(o.weight_decay) && o.weight_decay >= 0, "the weight decay must be finite and at least 0");
  check(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 < 1, "the betas must be in [0, 1)");
  check(std::isfinite(o.momentum_decay) && o.momentum_decay >= 0, "the decay of nadam's momentum must be finite and at least 0");
  check(std::isfinite(o.momentum) && o.momentum >= 0, "the momentum must be finite and at least 0");
  check(std::isfinite(o.clip_norm) && o.clip_norm >= 0, "the bound on the gradient norm must be finite and at least 0");
  check(std::isfinite(o.clip_value) && o.clip_value >= 0, "the bound on the elements of gradients must be finite and at least 0");
  check(o.clip_value == 0 || static_cast<float>(o.clip_value) > 0, "the bound on the elements of gradients is less than any number");
  check(o.clip_norm == 0 || o.clip_value == 0,
        "gradients are clipped by their norm or by their elements, not by both: set --clip-norm 0 or --clip-value 0");
  check(std::isfinite(o.dampening), "the dampening must be finite");
  check(!(o.nesterov || o.type == "nesterov") || o.dampening == 0, "nesterov has no dampening");
  check(o.alpha >= 0 && o.alpha <= 1, "alpha must be in [0, 1]");
  check(o.rho >= 0 && o.rho <= 1, "rho must be in [0, 1]");
  check(std::isfinite(o.lr_decay) && o.lr_decay >= 0, "the decay of the learning rate must be finite and at least 0");
  check(std::isfinite(o.initial_accumulator_value) && o.initial_accumulator_value >= 0,
        "the initial sum of squares must be finite and at least 0");
  check(!o.ema || (*o.ema >= 0 && *o.ema < 1), "the decay of moving averages (--ema) must be at least 0 and less than 1");
  check(o.ema || !o.ema_warmup, "ema_warmup needs moving averages: set --ema, for example to 0.999");
  for (const ParameterGroup& group : o.groups) {
    for (const std::optional<double>& option : {group.lr_scale, group.weight_decay}) {
      if (option && !(std::isfinite(*option) && *option >= 0))
        Refuse("the options of '" + Escaped(group.pattern) + "' must be finite and at least 0");
    }
  }
}

std::string ParameterNames(const Graph& graph, const std::map<ValueId, ValueId>& gradients) {
  Listing names(12);
  for (const auto& [parameter, gradient] : gradients) names.Add(Escaped(graph.value(parameter).name, 80));
  return names.text();
}

void CheckGroups(const Graph& graph, const std::vector<ParameterGroup>& groups, const std::map<ValueId, ValueId>& gradients) {
  for (const ParameterGroup& group : groups) {
    const bool any =
        std::ranges::any_of(gradients, [&](const auto& each) { return MatchesPattern(group.pattern, graph.value(each.first).name); });
    if (any) continue;
    throw Error(ErrorCode::kConfig, "optimizer: '" + Escaped(group.pattern) + "' matches no parameter that is trained", "",
                "these are trained: " + ParameterNames(graph, gradients));
  }
}

// An option of the first group that matches the name and states it.
std::optional<double> InGroups(const OptimizerOptions& options, const std::string& name, std::optional<double> ParameterGroup::*option) {
  for (const ParameterGroup& group : options.groups) {
    if (group.*option && MatchesPattern(group.pattern, name)) return group.*option;
  }
  return std::nullopt;
}

class Updates {
 public:
  Updates(GraphBuilder& builder, const OptimizerOptions& options, const std::set<ValueId>& vectors,
          const std::map<ValueId, ValueId>& gradients)
      : b_(builder), graph_(builder.graph()), options_(options), vectors_(vectors), rule_(RuleOf(options)) {
    CheckRanges(options);
    for (const auto& [parameter, gradient] : gradients) LearningRate(b_.dtype(parameter));
    step_ = StepParam(graph_, kStepNumber);
  }

  // Returns the sum of the squares of all gradients, added in the order of the parameters. It is float64 if the parameters have several
  // types.
  ValueId Squares(const std::map<ValueId, ValueId>& gradients) {
    const DType first = b_.dtype(gradients.begin()->second);
    const bool mixed = std::ranges::any_of(gradients, [&](const auto& each) { return b_.dtype(each.second) != first; });
    ValueId squares = kNoValue;
    for (const auto& [parameter, gradient] : gradients) {
      ValueId sum = b_.Op("ReduceSumSquare", {gradient}, {{"keepdims", int64_t{0}}});
      if (mixed) sum = b_.Cast(sum, DType::kFloat64);
      squares = squares == kNoValue ? sum : b_.Add(squares, sum);
    }
    return squares;
  }

  // The gradients are sums of batches with this weight. Without batches they are zero.
  void Average(const std::map<ValueId, ValueId>& gradients, ValueId weight) {
    const bool wide = std::ranges::any_of(gradients, [&](const auto& each) { return b_.dtype(each.second) == DType::kFloat64; });
    const DType dtype = wide ? DType::kFloat64 : DType::kFloat32;
    Multiply(b_.Op("Reciprocal", {b_.Op("Max", {b_.Cast(weight, dtype), b_.Scalar(1, dtype)})}));
  }

  // The gradients are those of `scale` times the loss.
  void Unscale(const LossScale& scale, ValueId squares) {
    // If a gradient is not finite, the sum is not finite either. The sum may also overflow, which also calls for a smaller scale.
    apply_ = b_.Op("Less", {squares, b_.Scalar(std::numeric_limits<double>::infinity(), b_.dtype(squares))});
    Multiply(b_.Op("Reciprocal", {b_.Cast(LossScaleValue(b_, scale), b_.dtype(squares))}));
    // Skipped updates are not counted.
    step_ = b_.Sub(step_, SkippedUpdates(b_));
    AddLossScaleUpdate(b_, scale, apply_);
  }

  // Clips the gradients, given the sum of their squares before they are multiplied by anything. Returns the norm before clipping.
  ValueId Clip(ValueId squares) {
    const DType dtype = b_.dtype(squares);
    ValueId norm = b_.Op("Sqrt", {squares});
    if (factor_ != kNoValue) norm = b_.Mul(norm, b_.Cast(factor_, dtype));
    const ValueId ratio = b_.Div(b_.Scalar(options_.clip_norm, dtype), b_.Add(norm, b_.Scalar(1e-6, dtype)));
    Multiply(b_.Op("Min", {ratio, b_.Scalar(1, dtype)}));
    return norm;
  }

  // Returns the next value of the parameter.
  ValueId Update(ValueId parameter, ValueId gradient) {
    const std::string name = graph_.value(parameter).name;
    const ValueType type = graph_.type(parameter);
    b_.set_origin(name);
    Attributes attributes = rule_.attributes;
    const UpdateRates rates = RatesOf(options_, name, type.shape.rank() < 2 || vectors_.contains(parameter));
    if (rates.weight_decay != 0) attributes.set("weight_decay", rates.weight_decay);
    SetLrScale(rates, attributes);
    ValueId factor = factor_ == kNoValue ? kNoValue : b_.Cast(factor_, type.dtype);
    if (options_.clip_value > 0) {
      gradient = Clamped(factor == kNoValue ? gradient : b_.Mul(gradient, factor));
      factor = kNoValue;
    }
    std::vector<ValueId> inputs{parameter, gradient, LearningRate(type.dtype), step_, factor, apply_};
    std::vector<ValueId> replaced{parameter};
    for (const std::string& state : rule_.states) {
      const double initial = rule_.op == "Adagrad" ? options_.initial_accumulator_value : 0.0;
      // Zeros are not stored: they would be as large as the parameters.
      replaced.push_back(initial == 0 ? graph_.AddValue(name + "/" + state, type.dtype, type.shape, Role::kState)
                                      : graph_.AddData(name + "/" + state, Filled(type, initial), Role::kState));
      graph_.value(replaced.back()).optimizes = parameter;
      inputs.push_back(replaced.back());
    }
    std::vector<ValueId> next = b_.Ops(rule_.op, kGradloomDomain, inputs, static_cast<int>(replaced.size()), std::move(attributes));
    if (rule_.op == "LambDirection") next[0] = LambApply(parameter, next[0], inputs[kUpdateLr], rates);
    for (size_t i = 0; i < next.size(); ++i) graph_.value(next[i]).next_of = replaced[i];
    return next[0];
  }

  // Lets a state follow the parameter, whose next value is `next`.
  void Average(ValueId parameter, ValueId next) {
    const std::string name = AverageOf(graph_.value(parameter).name);
    const ValueType type = graph_.type(parameter);
    if (graph_.Find(name) != kNoValue) {
      throw Error(ErrorCode::kConfig,
                  "the moving average of '" + Escaped(graph_.value(parameter).name) + "' would have the name of a value of the model, '" +
                      Escaped(name) + "'",
                  "--ema", "rename that value in the model, or omit --ema");
    }
    b_.set_origin(name);
    const Tensor* const initial = graph_.data(parameter);
    const ValueId average =
        initial != nullptr ? graph_.AddData(name, *initial, Role::kState) : graph_.AddValue(name, type.dtype, type.shape, Role::kState);
    graph_.value(average).averages = parameter;
    const ValueId moved = b_.Ops("MovingAverage", kGradloomDomain, {average, next, LearningRate(type.dtype), step_, kNoValue, apply_}, 1,
                                 {{"decay", *options_.ema}, {"warmup", int64_t{options_.ema_warmup}}})[0];
    graph_.value(moved).next_of = average;
  }

 private:
  // Updates multiply all gradients by this factor too.
  void Multiply(ValueId factor) { factor_ = factor_ == kNoValue ? factor : b_.Mul(b_.Cast(factor_, b_.dtype(factor)), factor); }

  ValueId Clamped(ValueId gradient) {
    const DType dtype = b_.dtype(gradient);
    return b_.Op("Clip", {gradient, b_.Scalar(-options_.clip_value, dtype), b_.Scalar(options_.clip_value, dtype)});
  }

  static Tensor Filled(const ValueType& type, double value) {
    Tensor doubles(DType::kFloat64, type.shape);
    std::ranges::fill(doubles.as<double>(), value);
    return Converted(doubles.view(), type.dtype);
  }

  static void SetLrScale(const UpdateRates& rates, Attributes& attributes) {
    if (rates.lr_scale != 1) attributes.set("lr_scale", rates.lr_scale);
  }

  // PyTorch computes with doubles, which a float64 parameter shows.
  ValueId LearningRate(DType dtype) { return StepParam(graph_, dtype == DType::kFloat64 ? kStepLr64 : kStepLr); }

  ValueId LambApply(ValueId parameter, ValueId direction, ValueId lr, const UpdateRates& rates) {
    const auto squares = [&](ValueId x) { return b_.Op("ReduceSumSquare", {x}, {{"keepdims", int64_t{0}}}); };
    Attributes attributes;
    SetLrScale(rates, attributes);
    return b_.Own("LambApply", {parameter, direction, lr, squares(parameter), squares(direction), apply_}, std::move(attributes));
  }

  GraphBuilder& b_;
  Graph& graph_;
  const OptimizerOptions& options_;
  const std::set<ValueId>& vectors_;
  Rule rule_;
  ValueId step_ = kNoValue, factor_ = kNoValue, apply_ = kNoValue;
};

}  // namespace

UpdateRates RatesOf(const OptimizerOptions& options, const std::string& name, bool vector) {
  const bool decays = !(options.no_decay_1d && vector);
  return {.lr_scale = InGroups(options, name, &ParameterGroup::lr_scale).value_or(1),
          .weight_decay = decays ? InGroups(options, name, &ParameterGroup::weight_decay).value_or(options.weight_decay) : 0};
}

std::vector<std::string> OptimizerTypes() {
  return {"sgd", "momentum", "nesterov", "adam", "adamw", "nadam", "radam", "rmsprop", "adagrad", "adadelta", "adamax", "lamb", "lion"};
}

ValueId AddOptimizer(GraphBuilder& builder, const OptimizerOptions& options, const std::map<ValueId, ValueId>& gradients,
                     const LossScale& scale, const std::set<ValueId>& vectors, ValueId weight) {
  if (gradients.empty()) return kNoValue;
  const Phase phase = builder.phase();
  builder.set_phase(Phase::kUpdate);
  Updates updates(builder, options, vectors, gradients);
  CheckGroups(builder.graph(), options.groups, gradients);
  ValueId norm = kNoValue;
  const bool scaled = scale.initial > 0, clips = options.clip_norm > 0;
  const ValueId squares = scaled || clips ? updates.Squares(gradients) : kNoValue;
  if (weight != kNoValue) updates.Average(gradients, weight);
  if (scaled) updates.Unscale(scale, squares);
  if (clips) norm = updates.Clip(squares);
  std::vector<std::pair<ValueId, ValueId>> updated;
  for (const auto& [parameter, gradient] : gradients) updated.emplace_back(parameter, updates.Update(parameter, gradient));
  if (options.ema) {
    for (const auto& [parameter, next] : updated) updates.Average(parameter, next);
  }
  builder.set_phase(phase);
  builder.set_origin("");
  return norm;
}

}  // namespace gradloom
