#include "tools/run/plan_recipe.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "tools/run/options/model_options.h"
#include "tools/run/sound_plan.h"
#include "tools/run/train/training_job.h"

namespace gradloom {
namespace {

constexpr char kProperty[] = "configuration";

// All keys except those that control the compiler itself and those that locate the model.
bool IsKept(const Key& key) {
  return (key.uses & kUseRecipe) != 0 && key.section() != "compiler" && std::string_view(key.name) != "model.path";
}

// Values that a run may change: what a plan stores as numbers, and the size of evaluations, for which entries are added.
bool MayDiffer(const Key& key) {
  const std::string_view name = key.name;
  return key.section() == "schedule" || name == "optimizer.lr" || name == "eval.batch";
}

}  // namespace

void KeepRecipe(const Configuration& configuration, Plan& plan) {
  std::string text = "version = 1\n", section;
  for (const Key& key : Keys()) {
    if (!IsKept(key) || !configuration.is_set(key.name) || !configuration.has_value(key.name)) continue;
    if (key.section() != section) text += "[" + std::string(key.section()) + "]\n";
    section = key.section();
    text += std::string(key.short_name()) + " = " + ValueText(configuration, key) + "\n";
  }
  plan.properties[kProperty] = text;
}

RecipePlan::RecipePlan(const std::string& path) : path_(path), plan_(ReadSoundPlan(path_, &proof_ms_)) {
  const std::string where = Escaped(path, 4096);
  if (!plan_.properties.contains(kProperty)) {
    throw Error(ErrorCode::kPlan, "the plan does not record what it was compiled from", where,
                "compile the model again with this release: gradloom compile MODEL -o " + where);
  }
  // A plan may come from anyone. It says what it was compiled from, but not where a run writes or whom it connects to.
  Configuration recipe;
  recipe.ReadText(recipe_text(), where);
  for (const Key& key : Keys()) {
    if (!recipe.is_set(key.name) || IsKept(key)) continue;
    throw Error(ErrorCode::kPlan, "the recipe in the plan sets " + std::string(key.name) + ", which no plan is compiled from",
                Escaped(recipe.origin(key.name).ToString(), 4096), "set it with " + std::string(key.flag) + " if you want it");
  }
}

const std::string& RecipePlan::recipe_text() const { return plan_.properties.at(kProperty); }

void RecipePlan::CheckModel(const Configuration& configuration) const {
  const std::string& model = configuration.Text("model.path");
  if (model.empty() || Model::Load(model, LoadOptionsOf(configuration)).hash() == plan_.model.hash) return;
  throw Error(ErrorCode::kPlan, "the plan was compiled from another model than '" + Escaped(model, 4096) + "'", Escaped(path_, 4096),
              "omit the model: the plan contains its own");
}

Model RecipePlan::model() const {
  std::map<std::string, Tensor> values;
  for (const StateTensor& tensor : plan_.state) {
    if (tensor.kind == StateKind::kParameter || tensor.kind == StateKind::kStatistic) values.emplace(tensor.name, tensor.initial);
  }
  return Model::FromInfo(plan_.model, values, ModelForm::kAsWritten);
}

Plan RecipePlan::Complete(const Configuration& configuration, const Model& model, CompileOptions options, CompileReport& report) const {
  Configuration compiled;
  compiled.ReadText(recipe_text(), Escaped(path_, 4096));
  for (const Key& key : Keys()) {
    const std::string there = ValueText(compiled, key), here = ValueText(configuration, key);
    // In a job that shares the plan's devices, each process has its own number of threads.
    const bool of_the_job = configuration.origin(key.name).place == kJobOrigin && std::string_view(key.name) == "devices.threads";
    if (!IsKept(key) || MayDiffer(key) || there == here || of_the_job) continue;
    throw Error(ErrorCode::kPlan, "the plan was compiled with " + std::string(key.name) + " = " + there + ", but this run has " + here,
                Escaped(path_, 4096) + ", " + Escaped(configuration.origin(key.name).ToString(), 4096),
                "omit " + std::string(key.flag) + ", or compile the model again with it");
  }
  Plan plan = plan_;
  plan.schedule = options.recipe.schedule;
  options.recipe.threads = plan.targets.front().threads;
  options.recipe.isa = plan.targets.front().isa;
  for (const EntryRequest& request : options.entries) {
    const auto add = [&](EntryKind kind) {
      if (plan.FindEntry(kind, request.batch) < 0) plan = AddEntry(model, options, plan, {kind, request.batch});
    };
    // With accumulation, a step is an entry that accumulates; on several devices there is another one for the last batch of an update.
    const bool adds = request.kind == EntryKind::kStep && plan.accumulate > 1;
    add(adds ? EntryKind::kAccumulate : request.kind);
    if (adds && plan.HasEntry(EntryKind::kLastBatch)) add(EntryKind::kLastBatch);
  }
  report.verify_ms = proof_ms_;
  for (const StateTensor& tensor : plan.state) {
    if (tensor.kind == StateKind::kParameter) report.trained_elements += tensor.shape.elements();
    if (tensor.kind != StateKind::kStatistic && tensor.kind != StateKind::kParameter) continue;
    report.initializer_elements += tensor.shape.elements();
  }
  for (const Program& program : plan.programs) report.transient_bytes = std::max(report.transient_bytes, program.transient_bytes);
  return plan;
}

}  // namespace gradloom
