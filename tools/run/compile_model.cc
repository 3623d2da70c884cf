#include "tools/run/compile_model.h"

#include <utility>

#include "runtime/base/number_text.h"
#include "runtime/session/schedule.h"
#include "tools/run/options/class_weights.h"
#include "tools/run/options/memory_limit.h"
#include "tools/run/options/micro_batch.h"
#include "tools/run/options/model_options.h"
#include "tools/run/options/node_placement.h"
#include "tools/run/options/optimizer_options.h"
#include "tools/run/options/recipe.h"
#include "tools/run/plan_recipe.h"
#include "tools/run/views/device_forecast.h"
#include "tools/run/views/function_note.h"
#include "tools/run/views/weight_notes.h"

namespace gradloom {
namespace {

// Used for the number of steps if it is unknown and does not matter.
constexpr int64_t kSomeSteps = 1000;

// Any size reveals the obstacles.
constexpr int64_t kSomeBatch = 32;

// Fused steps come first: they determine the state table.
// `eval_batch`: of evaluations and predictions; 0: the same as of training.
std::vector<EntryRequest> EntriesFor(const EntryRequests& requests, const std::vector<int64_t>& batches, int64_t eval_batch) {
  std::vector<EntryRequest> entries;
  const auto add = [&](EntryKind kind) {
    if (IsForwardOnly(kind) && eval_batch > 0) return entries.push_back({kind, eval_batch});
    for (const int64_t batch : batches) entries.push_back({kind, batch});
  };
  add(EntryKind::kStep);
  if (requests.gradients) {
    add(EntryKind::kAccumulate);
    entries.push_back({EntryKind::kUpdate, 0});
  }
  if (requests.eval) add(EntryKind::kEval);
  if (requests.predict) add(EntryKind::kPredict);
  return entries;
}

void CheckSeparateUpdate(const Configuration& configuration, const Recipe& recipe) {
  if (recipe.UsesFileAlgorithm()) {
    throw Error(ErrorCode::kConfig, "the file's own training algorithm is one step: its gradients and its update cannot be separated", "",
                "use --loss NAME to train with Gradloom's losses and optimizers");
  }
  if (recipe.accumulate > 1) {
    throw Error(ErrorCode::kConfig,
                "the plan accumulates " + std::to_string(recipe.accumulate) + " batches per update, but so does the caller",
                configuration.origin("train.accumulate").place, "omit one of them");
  }
}

// Reads what the model is compiled for, except the schedule of a run. `made` gets the options and notes.
void ReadOptions(const Configuration& configuration, const Model& model, const EntryRequests& requests, CompiledModel& made) {
  CompileOptions& options = made.options;
  options.import = ImportOptionsOf(configuration, model);
  options.control = PassControlOf(configuration);
  if (!requests.batches.empty()) options.import.batch = requests.batches.front();
  // A symbolic batch must be given some size.
  if (options.import.batch == 0) options.import.batch = kSomeBatch;
  const int64_t steps = configuration.Integer("train.steps");
  const ImportedGraph probe = Import(model, options.import);
  options.recipe = RecipeOf(configuration, model, *probe.graph, steps > 0 || !requests.only_check ? steps : kSomeSteps, made.notes);
  options.recipe.fetch_outputs = requests.outputs;
  options.recipe.input_gradients = {requests.input_gradients.begin(), requests.input_gradients.end()};
  if (!requests.only_check) RefuseWeightsByData(configuration);
  if (requests.gradients) CheckSeparateUpdate(configuration, options.recipe);
  options.entries = EntriesFor(requests, requests.batches.empty() ? std::vector<int64_t>{probe.batch} : requests.batches,
                               configuration.Integer("eval.batch"));
}

}  // namespace

std::string CompileTimes(const CompileReport& report) {
  const double all_ms = report.import_ms + report.passes_ms + report.verify_ms;
  return Formatted("import %.1f ms, passes %.1f ms, proof %.1f ms (%.1f %%)", report.import_ms, report.passes_ms, report.verify_ms,
                   all_ms > 0 ? 100 * report.verify_ms / all_ms : 0);
}

CompiledModel CompileModel(Configuration configuration, const Model& model, const EntryRequests& requests) {
  DropUnfitPlacement(configuration);
  ApplyMicroBatch(configuration);
  DropOptionsOfOthers(configuration);
  CompiledModel made;
  const CompileOptions& options = made.options;
  ReadOptions(configuration, model, requests, made);
  if (requests.only_check && LosesDetached(model))
    made.notes.push_back(
        "note    the exporter of this file does not record detach(): use --detach VALUE[@NODE] where the module detaches values");
  if (!requests.only_check) CheckSchedule(options.recipe.schedule);
  made.plan = Compile(model, options, &made.report);
  KeepRecipe(configuration, made.plan);
  CheckMemoryLimit(configuration, model, options, made.plan);
  for (std::string& line : WeightNotes(model, made.plan)) made.notes.push_back(std::move(line));
  if (const std::string line = FunctionNote(model); !line.empty() && !configuration.has_value("model.surrogate"))
    made.notes.push_back(line);
  if (const std::string line = TailLine(configuration, made.report, options.recipe.device); !line.empty()) made.notes.push_back(line);
  if (const std::string line = RecomputedLine(made.report, options.recipe.recompute); !line.empty()) made.notes.push_back(line);
  if (!requests.only_check) AddForecast(configuration, model, options, made.plan, made.report, made.notes);
  return made;
}

void ShowPasses(Configuration configuration, const Model& model, const EntryRequests& requests) {
  DropUnfitPlacement(configuration);
  ApplyMicroBatch(configuration);
  DropOptionsOfOthers(configuration);
  CompiledModel read;
  ReadOptions(configuration, model, requests, read);
  RunPasses(model, read.options);
}

}  // namespace gradloom
