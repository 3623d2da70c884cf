#include "tools/run/training_export.h"

#include <map>
#include <utility>

#include "compiler/onnx/export/export.h"
#include "compiler/training_algorithm.h"
#include "runtime/base/error.h"
#include "runtime/plan/plan_file.h"
#include "tools/run/class_weights.h"
#include "tools/run/model_options.h"
#include "tools/run/recipe.h"
#include "tools/run/run_folder.h"
#include "tools/run/stored_tensors.h"

namespace gradloom {
namespace {

constexpr int64_t kDefaultBatch = 32;

// The state that a run has reached.
struct TrainedState {
  std::map<std::string, Tensor> values;  // parameters, statistics and optimizer state, by the plan's names
  int64_t updates = 0;                   // number of updates so far
};

// Includes optimizer state if the file has it.
TrainedState StateOf(const Plan& plan, const std::string& path, std::vector<std::string>& notes) {
  TrainedState state{WeightsOf(plan, path, notes), 0};
  const StoredTensors stored(path);
  size_t wanted = 0, found = 0;
  for (const StateTensor& tensor : plan.state) {
    if (tensor.kind != StateKind::kOptimizer) continue;
    ++wanted;
    const auto type = stored.types().find(tensor.name);
    if (type == stored.types().end() || type->second.shape != tensor.shape) continue;
    state.values.emplace(tensor.name, stored.Read(tensor.name));
    ++found;
  }
  if (found == wanted) {
    state.updates = stored.updates();
  } else {
    notes.push_back("the file has weights but no optimizer state, so the optimizer starts from scratch: " + Escaped(path, 4096));
  }
  return state;
}

}  // namespace

void ExportTraining(const TrainedSource& source, const Configuration& configuration, const std::string& out, const ExportOptions& options,
                    std::vector<std::string>& notes) {
  const RunFolder run = RunFolder::Open(source.path);
  const Plan plan = ReadPlan(run.PlanPath());
  const TrainedState state = StateOf(plan, WeightsPathOf(source, notes), notes);
  const Model model = Model::FromBytes(ExportedBytes(plan.model, state.values, ModelForm::kAsWritten), plan.model.name);
  ImportOptions import = ImportOptionsOf(configuration);
  if (import.batch == 0) import.batch = kDefaultBatch;
  std::vector<std::string> guesses;
  Recipe recipe = RecipeOf(configuration, model, *Import(model, import).graph, 0, guesses);
  WeighClassesAsTrained(configuration, plan.losses, recipe);
  if (recipe.UsesFileAlgorithm()) {
    notes.push_back("the run used the file's own training algorithm, which the file keeps");
    return ExportTrained(plan.model, state.values, out, options);
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
  const Algorithm algorithm = MakeAlgorithm(model, recipe, import, parameters, state.updates);
  ExportWithAlgorithm(plan.model, state.values, algorithm, out, options);
}

}  // namespace gradloom
