#include "compiler/training_algorithm.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "compiler/onnx/type_rules.h"
#include "compiler/open_extents.h"
#include "compiler/passes/gradient/differentiate.h"
#include "compiler/passes/loss/add_loss.h"
#include "compiler/passes/schedule/program_plan.h"
#include "compiler/passes/seed_random.h"
#include "compiler/passes/simplify.h"
#include "compiler/passes/standard_form.h"
#include "compiler/passes/training_view.h"
#include "compiler/passes/update/add_optimizer.h"
#include "compiler/passes/update/choose_trainable.h"
#include "compiler/passes/update/stored_vectors.h"
#include "compiler/passes/update/tie_copies.h"
#include "compiler/passes/update/traced.h"
#include "runtime/plan/schedule_formula.h"

namespace gradloom {
namespace {

constexpr char kUpdates[] = "training/updates";
constexpr char kLearningRate[] = "training/learning_rate";

void CheckRecipe(const Recipe& recipe) {
  const auto refuse = [](const std::string& what, const std::string& help) {
    throw Error(ErrorCode::kUnsupported, what + " cannot be exported as an ONNX training algorithm", "--training", help);
  };
  if (recipe.accumulate > 1) {
    refuse("gradient accumulation over " + std::to_string(recipe.accumulate) + " batches",
           "train with --accumulate 1 and a batch size " + std::to_string(recipe.accumulate) + " times as large");
  }
  if (recipe.precision == Precision::kBfloat16 || recipe.precision == Precision::kFloat16)
    refuse("mixed precision", "train with --precision fp32");
  if (recipe.loss_scale.initial > 0) refuse("loss scaling", "train with --loss-scale off");
}

// Builds the algorithm at the extents of one import.
class AlgorithmBuilder {
 public:
  AlgorithmBuilder(const Model& model, const Recipe& recipe, const ImportOptions& import)
      : recipe_(recipe), imported_(Import(model, import)), graph_(*imported_.graph), b_(graph_, rules_) {}

  Algorithm Run(const std::vector<std::string>& parameters, const std::vector<TiedTensor>& tied, int64_t updates) {
    std::vector<std::string> names = parameters;
    for (const TiedTensor& tensor : tied) names.push_back(tensor.name);
    TrainableChoice choice = ChooseTrainable(graph_, {.trainable = {}, .freeze = {}, .only = std::move(names)});
    TieCopies(graph_, tied, choice.parameters);
    const std::set<ValueId> vectors = StoredVectors(graph_, choice.parameters);
    Algorithm made;
    made.first = graph_.next_node_id();
    made.model_inputs = graph_.inputs;
    made.output_names = imported_.output_names;
    const ValueId count = graph_.AddData(kUpdates, Tensor::Scalar<int64_t>(updates), Role::kState);
    const ValueId number = b_.Add(count, b_.Scalar(1, DType::kInt64));
    graph_.value(number).next_of = count;
    const auto is_wide = [&](ValueId id) { return graph_.value(id).dtype == DType::kFloat64; };
    const bool all_wide = std::all_of(choice.parameters.begin(), choice.parameters.end(), is_wide);
    const bool any_wide = std::any_of(choice.parameters.begin(), choice.parameters.end(), is_wide);
    const ValueId rate = all_wide ? kNoValue : LearningRate<float>(count);
    const ValueId wide_rate = any_wide ? LearningRate<double>(count) : kNoValue;
    if (!imported_.extents.empty()) {
      const Value& output = graph_.value(imported_.extents.begin()->first);
      throw Error(ErrorCode::kUnsupported,
                  "the output '" + Escaped(output.name) + "' has a data-dependent shape, which ONNX's training standard cannot express", "",
                  "export without --training, or compute the loss in the model");
    }
    LossOperands operands(b_, imported_.output_names, imported_.extents);
    made.loss = AddLoss(b_, recipe_.losses, imported_.batch, operands).sum;
    made.target_names = operands.feed_names();
    std::map<ValueId, ValueId> gradients;
    for (const ValueId parameter : Reached(made.loss, choice.parameters)) {
      const Value value = graph_.value(parameter);
      const ValueId gradient = graph_.AddValue(value.name + "/gradient", value.dtype, value.shape, Role::kGradient);
      gradients.emplace(parameter, gradient);
      made.gradients.emplace_back(parameter, gradient);
    }
    AddOptimizer(b_, recipe_.optimizer, gradients, {}, vectors);
    Replace(kStepLr, rate);
    Replace(kStepLr64, wide_rate);
    Replace(kStepNumber, number);
    graph_.outputs.push_back(made.loss);
    ApplyStandardForm(b_, made.first);
    made.loss = graph_.outputs.back();
    graph_.outputs.pop_back();
    RemoveUnused(made);
    made.graph = std::move(imported_.graph);
    return made;
  }

  const ImportedGraph& imported() const { return imported_; }

 private:
  // Returns the learning rate after that many updates, a scalar of type T.
  template <typename T>
  ValueId LearningRate(ValueId updates) {
    const Traced<T> rate(schedule_formula::Rate<Traced<double>>(recipe_.schedule, Traced<int64_t>(b_, updates)));
    return rate.is_known() ? b_.Constant(Tensor::Scalar<T>(rate.constant()), kLearningRate) : rate.id();
  }

  // Returns the parameters that the loss depends on, as training would find them.
  std::vector<ValueId> Reached(ValueId loss, const std::vector<ValueId>& parameters) const {
    const std::unique_ptr<Graph> copy = graph_.Clone();
    GraphBuilder builder(*copy, rules_);
    copy->outputs = {loss};
    ApplyTrainingView(builder, recipe_.mode == GraphMode::kTrain ? ModelView::kTrain : ModelView::kAsWritten);
    SeedRandom(builder);
    Simplify(*copy);
    const std::map<ValueId, ValueId> gradients = Differentiate(builder, copy->outputs[0], parameters);
    std::vector<ValueId> reached;
    for (const ValueId parameter : parameters) {
      if (gradients.contains(parameter)) reached.push_back(parameter);
    }
    return reached;
  }

  // Replaces a step parameter by a value of the algorithm.
  void Replace(std::string_view step_param, ValueId by) {
    const ValueId given = graph_.Find(step_param);
    if (given == kNoValue) return;
    for (Node& node : graph_.nodes) std::replace(node.inputs.begin(), node.inputs.end(), given, by);
    std::erase(graph_.inputs, given);
  }

  // Removes nodes of the algorithm that neither the loss nor a next value needs.
  void RemoveUnused(const Algorithm& made) {
    std::set<ValueId> needed{made.loss};
    for (const Value& value : graph_.values()) {
      if (value.next_of != kNoValue) needed.insert(value.id);
    }
    std::vector<Node> kept;
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      Node& node = graph_.nodes[i];
      const bool is_needed = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return needed.contains(id); });
      if (node.id >= made.first && !is_needed) continue;
      ForEachUse(node, [&](ValueId id) { needed.insert(id); });
      kept.push_back(std::move(node));
    }
    graph_.nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  }

  const Recipe& recipe_;
  const OnnxTypeRules rules_;
  ImportedGraph imported_;
  Graph& graph_;
  GraphBuilder b_;
};

}  // namespace

Algorithm MakeAlgorithm(const Model& model, const Recipe& recipe, const ImportOptions& import, const std::vector<std::string>& parameters,
                        const std::vector<TiedTensor>& tied, int64_t updates) {
  CheckRecipe(recipe);
  const auto make = [&](const ImportOptions& at) {
    AlgorithmBuilder builder(model, recipe, at);
    return builder.Run(parameters, tied, updates);
  };
  Algorithm made = make(import);
  std::vector<OtherExtent> others;
  for (const OpenExtent& extent : OpenExtents(model, import)) {
    if (extent.is_fixed) continue;
    // An extent for which the model only allows this value is not open.
    for (const int64_t value : {extent.value + 1, 2 * extent.value}) {
      try {
        others.push_back({extent, value, std::make_shared<Algorithm>(make(extent.At(import, value)))});
        break;
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kInternal) throw;
      }
    }
  }
  ReadExtents(made, others);
  return made;
}

}  // namespace gradloom
