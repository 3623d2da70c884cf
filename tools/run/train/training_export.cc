#include "tools/run/train/training_export.h"

#include <cstddef>
#include <cstdint>

#include "compiler/onnx/export/export.h"
#include "compiler/training_algorithm.h"
#include "runtime/base/error.h"
#include "tools/run/options/class_weights.h"
#include "tools/run/options/model_options.h"
#include "tools/run/options/recipe.h"

namespace gradloom {
namespace {

constexpr int64_t kDefaultBatch = 32;

// Adds the types of the stored optimizer state. Returns the number of updates so far; 0 if it is not all stored.
int64_t AddOptimizerState(const Plan& plan, const StoredTensors& stored, std::map<std::string, TensorView>& types,
                          std::vector<std::string>& notes) {
  size_t wanted = 0, found = 0;
  for (const StateTensor& tensor : plan.state) {
    if (tensor.kind != StateKind::kOptimizer && tensor.kind != StateKind::kAverage) continue;
    ++wanted;
    const auto type = stored.types().find(tensor.name);
    if (type == stored.types().end() || type->second.shape != tensor.shape) continue;
    types.insert(*type);
    ++found;
  }
  if (found == wanted) return stored.updates().value_or(0);
  notes.push_back("the file has weights but no optimizer state, so the optimizer starts from scratch: " + Escaped(stored.path(), 4096));
  return 0;
}

}  // namespace

void ExportTraining(const Plan& plan, const StoredTensors& stored, const TrainedValues& weights, const Configuration& configuration,
                    const std::string& out, const ExportOptions& options, std::vector<std::string>& notes) {
  TrainedValues values = weights;
  const int64_t updates = AddOptimizerState(plan, stored, values.types, notes);
  // The model's values are needed to write its training; those of the optimizer are only copied.
  const std::map<std::string, Tensor> read = ReadAll(weights);
  values.read = [&](const std::string& name) {
    const auto weight = read.find(name);
    return weight != read.end() ? weight->second : stored.Read(name);
  };
  const Model model = Model::FromInfo(plan.model, read, ModelForm::kAsWritten);
  ImportOptions import = ImportOptionsOf(configuration, model);
  if (import.batch == 0) import.batch = kDefaultBatch;
  std::vector<std::string> guesses;
  Recipe recipe = RecipeOf(configuration, model, *Import(model, import).graph, 0, guesses);
  WeighClassesAsTrained(configuration, plan.losses, recipe);
  if (recipe.UsesFileAlgorithm()) {
    notes.push_back("the run used the file's own training algorithm, which the file keeps");
    return ExportTrained(plan.model, values, out, options);
  }
  if (configuration.has_value("schedule.plateau_patience")) {
    throw Error(ErrorCode::kUnsupported, "a learning rate that depends on evaluations cannot be written as an ONNX training algorithm",
                Escaped(configuration.origin("schedule.plateau_patience").place, 4096), "train without --plateau-patience");
  }
  recipe.schedule = plan.schedule;
  std::vector<std::string> parameters;
  for (const StateTensor& tensor : plan.state) {
    if (tensor.kind == StateKind::kParameter) parameters.push_back(tensor.name);
  }
  const Algorithm algorithm = MakeAlgorithm(model, recipe, import, parameters, plan.model.tied, updates);
  for (const auto& [target, name] : ExportWithAlgorithm(plan.model, values, algorithm, out, options)) {
    notes.push_back("the target '" + Escaped(target) + "' is '" + Escaped(name) +
                    "' in the file, because the model has a value of that name: --map " + Escaped(name) + "=" + Escaped(target));
  }
}

}  // namespace gradloom
