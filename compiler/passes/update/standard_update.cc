#include "compiler/passes/update/standard_update.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "compiler/passes/update/traced.h"
#include "kernels/catalog/update.h"

namespace gradloom {
namespace {

constexpr std::string_view kTraining = "ai.onnx.preview.training";

// The learning rate of an update, whose operand `i` has float64 for a float64 parameter and otherwise float32.
Traced<double> LearningRate(GraphBuilder& b, const Node& node, int i) {
  const ValueId lr = node.inputs[static_cast<size_t>(i)];
  const Traced<double> wide = b.dtype(lr) == DType::kFloat64 ? Traced<double>(b, lr) : Traced<double>(Traced<float>(b, lr));
  return wide * LrScale(node.attributes);
}

// An update of a parameter with elements of type T.
template <typename T>
class Update {
 public:
  using Number = Traced<T>;

  Update(GraphBuilder& builder, const Node& node)
      : b_(builder),
        node_(node),
        lr_(LearningRate(builder, node, kUpdateLr)),
        step_(b_, In(kUpdateStep)),
        parameter_(b_, In(kUpdateParameter)),
        gradient_(b_, In(kUpdateGradient)) {
    if (In(kUpdateClip) != kNoValue) gradient_ *= Number(b_, In(kUpdateClip));
    for (size_t i = kUpdateStates; i < node.inputs.size(); ++i) states_.emplace_back(b_, node.inputs[i]);
  }

  std::vector<ValueId> Run() {
    if (const std::vector<ValueId> made = OfOnnx(); !made.empty()) return made;
    const Attributes& a = node_.attributes;
    if (node_.op == "Sgd") {
      const auto s = scalar::MakeStep<Number>(SgdOptionsOf(a), lr_, step_);
      states_.empty() ? scalar::SgdElement(s, gradient_, parameter_) : scalar::MomentumElement(s, gradient_, parameter_, states_[0]);
    } else if (node_.op == "Adam") {
      const auto s = scalar::MakeStep<Number>(AdamOptionsOf(a), lr_, step_);
      states_.size() == 2 ? scalar::AdamElement(s, gradient_, parameter_, states_[0], states_[1])
                          : scalar::AmsgradElement(s, gradient_, parameter_, states_[0], states_[1], states_[2]);
    } else if (node_.op == "NAdam") {
      scalar::NAdamElement(scalar::MakeStep<Number>(NAdamOptionsOf(a), lr_, step_), gradient_, parameter_, states_[0], states_[1]);
    } else if (node_.op == "RAdam") {
      scalar::RAdamElement(scalar::MakeStep<Number>(RAdamOptionsOf(a), lr_, step_), gradient_, parameter_, states_[0], states_[1]);
    } else if (node_.op == "Lion") {
      scalar::LionElement(scalar::MakeStep<Number>(LionOptionsOf(a), lr_, step_), gradient_, parameter_, states_[0]);
    } else if (node_.op == "RmsProp") {
      // The states are the square average, the momentum buffer and the gradient average, as far as they exist.
      Number none(0);
      Number& last = states_.size() > 1 ? states_.back() : none;
      scalar::RmsPropElement(scalar::MakeStep<Number>(RmsPropOptionsOf(a), lr_, step_), gradient_, parameter_, states_[0],
                             states_.size() > 1 ? states_[1] : none, last);
    } else if (node_.op == "Adagrad") {
      scalar::AdagradElement(scalar::MakeStep<Number>(AdagradOptionsOf(a), lr_, step_), gradient_, parameter_, states_[0]);
    } else if (node_.op == "Adadelta") {
      scalar::AdadeltaElement(scalar::MakeStep<Number>(AdadeltaOptionsOf(a), lr_, step_), gradient_, parameter_, states_[0], states_[1]);
    } else if (node_.op == "MovingAverage") {
      scalar::MovingAverageElement(scalar::MakeStep<Number>(MovingAverageOptionsOf(a), lr_, step_), gradient_, parameter_);
    } else if (node_.op == "Adamax") {
      scalar::AdamaxElement(scalar::MakeStep<Number>(AdamaxOptionsOf(a), lr_, step_), gradient_, parameter_, states_[0], states_[1]);
    } else {
      parameter_ =
          scalar::LambElement(scalar::MakeStep<Number>(AdamOptionsOf(a), lr_, step_), gradient_, parameter_, states_[0], states_[1]);
    }
    std::vector<ValueId> made{parameter_.id()};
    for (const Number& state : states_) made.push_back(state.id());
    return made;
  }

 private:
  ValueId In(size_t i) const { return i < node_.inputs.size() ? node_.inputs[i] : kNoValue; }

  // ONNX's attributes are float32: whether the numbers are exact in that type.
  static bool AreFloats(std::initializer_list<double> numbers) {
    for (const double number : numbers) {
      if (static_cast<T>(static_cast<float>(number)) != static_cast<T>(number)) return false;
    }
    return true;
  }

  // Returns the results of a single ONNX operator, if one defines the same update; otherwise an empty list.
  std::vector<ValueId> OfOnnx() {
    if (node_.op == "Sgd" && !states_.empty()) {
      const scalar::SgdOptions o = SgdOptionsOf(node_.attributes);
      if (!AreFloats({o.momentum, 1 - o.dampening, o.weight_decay})) return {};
      return Emit("Momentum", {{"alpha", o.momentum},
                               {"beta", 1 - o.dampening},
                               {"mode", std::string(o.nesterov ? "nesterov" : "standard")},
                               {"norm_coefficient", o.weight_decay}});
    }
    if (node_.op == "Adagrad") {
      const scalar::AdagradOptions o = AdagradOptionsOf(node_.attributes);
      if (!AreFloats({o.lr_decay, o.eps, o.weight_decay})) return {};
      return Emit("Adagrad", {{"decay_factor", o.lr_decay}, {"epsilon", o.eps}, {"norm_coefficient", o.weight_decay}});
    }
    if (node_.op == "Adam" && states_.size() == 2) {
      const scalar::AdamOptions o = AdamOptionsOf(node_.attributes);
      if (o.eps != 0 || (o.decoupled && o.weight_decay != 0) || !AreFloats({o.beta1, o.beta2, o.weight_decay})) return {};
      return Emit("Adam", {{"alpha", o.beta1}, {"beta", o.beta2}, {"epsilon", 0.0}, {"norm_coefficient", o.weight_decay}}, /*from=*/1);
    }
    return {};
  }

  // `from`: the number that the operator gives to the first update; 0 according to ONNX's documentation.
  std::vector<ValueId> Emit(const char* op, Attributes attributes, int from = 0) {
    const Traced<int64_t> count = from == 1 ? step_ : step_ - 1;
    std::vector<ValueId> inputs{Number(lr_).id(), count.id(), parameter_.id(), gradient_.id()};
    for (const Number& state : states_) inputs.push_back(state.id());
    return b_.Ops(op, kTraining, std::move(inputs), 1 + static_cast<int>(states_.size()), std::move(attributes));
  }

  GraphBuilder& b_;
  const Node& node_;
  const Traced<double> lr_;
  const Traced<int64_t> step_;
  Number parameter_, gradient_;
  std::vector<Number> states_;
};

// Operands: parameter, direction, learning rate, sums of squares of parameter and direction.
template <typename T>
std::vector<ValueId> LambApply(GraphBuilder& b, const Node& node) {
  using Number = Traced<T>;
  const auto in = [&](int i) { return Number(b, node.inputs[static_cast<size_t>(i)]); };
  const Number ratio = scalar::TrustRatio(in(kLambParameterSquares), in(kLambDirectionSquares));
  const Traced<double> lr = LearningRate(b, node, kLambLr);
  return {(in(kLambParameter)-Number(lr) * ratio * in(kLambDirection)).id()};
}

}  // namespace

bool IsUpdate(const Node& node) {
  if (node.domain != kGradloomDomain) return false;
  for (const char* op : {"Sgd", "Adam", "NAdam", "RAdam", "Lion", "RmsProp", "Adagrad", "Adadelta", "Adamax", "MovingAverage",
                         "LambDirection", "LambApply"}) {
    if (node.op == op) return true;
  }
  return false;
}

std::vector<ValueId> StandardUpdate(GraphBuilder& builder, const Node& node) {
  const bool lamb = node.op == "LambApply";
  const size_t apply = lamb ? size_t{kLambApply} : size_t{kUpdateApply};
  if (apply < node.inputs.size() && node.inputs[apply] != kNoValue)
    throw Error(ErrorCode::kUnsupported, "updates that are skipped if a gradient is not finite cannot be written with ONNX operators",
                Describe(node), "train without a loss scale: --precision fp32, --loss-scale off");
  const DType dtype = builder.dtype(node.inputs[0]);
  if (dtype == DType::kFloat32) return lamb ? LambApply<float>(builder, node) : Update<float>(builder, node).Run();
  if (dtype == DType::kFloat64) return lamb ? LambApply<double>(builder, node) : Update<double>(builder, node).Run();
  throw Error(ErrorCode::kUnsupported,
              "an update of elements of type " + std::string(DTypeName(dtype)) + " cannot be written with ONNX operators", Describe(node));
}

}  // namespace gradloom
