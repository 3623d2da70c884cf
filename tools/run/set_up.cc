#include "tools/run/set_up.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/stopwatch.h"
#include "runtime/plan/sample_axes.h"
#include "runtime/session/update_rule.h"
#include "tools/run/options/class_weights.h"
#include "tools/run/options/data_extents.h"
#include "tools/run/options/data_options.h"
#include "tools/run/options/key_values.h"
#include "tools/run/options/loss_terms.h"
#include "tools/run/options/memory_limit.h"
#include "tools/run/options/metric_options.h"
#include "tools/run/options/micro_batch.h"
#include "tools/run/options/model_options.h"
#include "tools/run/options/named_devices.h"
#include "tools/run/options/node_placement.h"
#include "tools/run/options/optimizer_options.h"
#include "tools/run/options/recipe.h"
#include "tools/run/plan_recipe.h"
#include "tools/run/train/job.h"
#include "tools/run/views/device_forecast.h"
#include "tools/run/views/function_note.h"
#include "tools/run/views/obstacles.h"
#include "tools/run/views/weight_notes.h"

namespace gradloom {
namespace {

constexpr int64_t kDefaultBatch = 32;

// Notes the flags that override a configuration file, because users may expect the file's value.
void NoteOverriddenKeys(const Configuration& configuration, std::vector<std::string>& notes) {
  for (const Key& key : Keys()) {
    const Origin& origin = configuration.origin(key.name);
    if (!origin.overridden.empty()) notes.push_back("config  " + std::string(key.name) + " from " + Escaped(origin.ToString(), 4096));
  }
}

TrainerOptions TrainerOptionsOf(const Configuration& configuration, const Recipe& recipe, const Graph& graph, int64_t batch) {
  TrainerOptions options;
  options.epochs = configuration.Integer("train.epochs");
  options.updates = configuration.Integer("train.steps");
  options.batch = batch;
  options.eval_batch = configuration.Integer("eval.batch");
  Reading(configuration, "eval.every", [&] { options.evaluate = Interval::Parse(configuration.Text("eval.every"), "eval.every"); });
  if (options.evaluate.unit == Interval::Unit::kSeconds) {
    throw Error(ErrorCode::kConfig, "the evaluation interval must be in epochs or updates, so that a run can be repeated",
                Escaped(configuration.origin("eval.every").place, 4096), "use --eval-every 1ep");
  }
  options.metrics = MetricsOf(configuration, recipe, graph);
  options.patience = configuration.Integer("train.early_stop");
  options.skip_non_finite = configuration.Text("train.on_nan") == "skip";
  options.in_order = configuration.Switch("data.no_shuffle");
  const std::string& best = configuration.Text("eval.best");
  const std::string first = options.metrics.empty() ? "loss" : options.metrics.front().shown();
  options.watch = best.empty() ? Watch{first, LargerIsBetter(first)} : Watch::Parse(best);
  if (configuration.has_value("schedule.plateau_patience")) {
    options.plateau = PlateauOptions{.larger = options.watch.larger,
                                     .factor = configuration.Number("schedule.plateau_factor"),
                                     .patience = configuration.Integer("schedule.plateau_patience"),
                                     .threshold = configuration.Number("schedule.plateau_threshold"),
                                     .cooldown = configuration.Integer("schedule.plateau_cooldown"),
                                     .min_lr = configuration.Number("schedule.plateau_min_lr")};
    return options;
  }
  for (const char* name :
       {"schedule.plateau_factor", "schedule.plateau_threshold", "schedule.plateau_cooldown", "schedule.plateau_min_lr"}) {
    // Earlier releases ignored them.
    if (!IsChanged(configuration, *FindKey(name)) || configuration.origin(name).recorded) continue;
    throw Error(ErrorCode::kConfig, std::string(FindKey(name)->flag) + " needs --plateau-patience",
                Escaped(configuration.origin(name).place, 4096), "add --plateau-patience 10, or leave it out");
  }
  return options;
}

// When a run saves: checkpoint.every, where "auto" is after each epoch, if there is time for it.
void SetSaves(const Configuration& configuration, TrainingSetUp& set_up) {
  const std::string& every = configuration.Text("checkpoint.every");
  set_up.may_skip_saves = every == "auto";
  Reading(configuration, "checkpoint.every", [&] {
    try {
      set_up.options.save = Interval::Parse(set_up.may_skip_saves ? "1ep" : every, "checkpoint.every");
    } catch (const Error& error) {
      throw Error(error.code(), error.message(), error.where(), std::string("expected auto, ") + Interval::kForms);
    }
  });
}

// Checks keys that need an evaluation if there is none. `data`: there is data for it, but it is never due.
void CheckNothingIsMeasured(const Configuration& configuration, bool data, std::vector<std::string>& notes) {
  const std::pair<const char*, bool> keys[] = {{"eval.metric", !configuration.Texts("eval.metric").empty()},
                                               {"train.early_stop", configuration.Integer("train.early_stop") > 0},
                                               {"schedule.plateau_patience", configuration.has_value("schedule.plateau_patience")},
                                               {"eval.best", !configuration.Text("eval.best").empty()}};
  for (const auto& [name, asked] : keys) {
    if (!asked) continue;
    const std::string flag = FindKey(name)->flag, where = Escaped(configuration.origin(name).place, 4096);
    if (!data) {
      throw Error(ErrorCode::kConfig, flag + " needs evaluation data, but there is none", where,
                  "use --eval-split 20% to hold back a part of the training data");
    }
    // gradloom eval uses the metrics of a run, too.
    if (std::string_view(name) == "eval.metric") {
      notes.push_back("note    with --eval-every never, --metric is only for gradloom eval");
      continue;
    }
    throw Error(ErrorCode::kConfig, flag + " needs evaluations, but --eval-every is never", where, "omit one of them");
  }
}

// Makes a set-up, in steps that each use what the ones before have found.
class SetUpWork {
 public:
  // All are borrowed; `planned`: the plan that model.plan names, or null; `frozen`: null if the model has its own.
  SetUpWork(Configuration& configuration, const RecipePlan* planned, const FrozenSource* frozen)
      : configuration_(configuration),
        planned_(planned),
        frozen_(frozen),
        model_(planned != nullptr ? planned->model() : Model::Load(ModelPathOf(configuration), LoadOptionsOf(configuration))) {
    made_.model_path = planned != nullptr ? planned->path() : ModelPathOf(configuration);
  }

  TrainingSetUp Make() {
    ReadRecipe();
    TakeFrozenWeights();
    DecideForResumes();
    LoadData();
    PlanEntries();
    CompilePlan();
    return std::move(made_);
  }

 private:
  const Graph& graph() const { return *probe_.graph; }

  // Symbolic extents without a number are those of the arrays, so that the run knows them, too.
  void TakeExtentsOfData() {
    if (planned_ != nullptr || configuration_.Text("data.train").empty()) return;
    const DataOptions data = DataOptionsOf(configuration_);
    const auto found = MissingExtents(model_, compile_.import, data.train, data.format, data.columns);
    if (found.empty()) return;
    std::vector<std::string> words;
    std::string line;
    for (const auto& [name, values] : configuration_.Named("model.shape")) words.push_back(name + "=" + values[0]);
    for (const auto& [symbol, extent] : found) {
      words.push_back(symbol + "=" + std::to_string(extent));
      line += (line.empty() ? "" : "  ") + Escaped(words.back());
    }
    configuration_.SetFlag(*FindKey("model.shape"), words);
    compile_.import.shapes.insert(found.begin(), found.end());
    of_data_ = found;
    made_.notes.push_back("shape   " + line + "   [of the data: set --shape to change]");
  }

  void ReadRecipe() {
    compile_.import = ImportOptionsOf(configuration_, model_);
    TakeExtentsOfData();
    // A symbolic batch needs some size until the data is known.
    if (compile_.import.batch == 0) compile_.import.batch = kDefaultBatch;
    compile_.control = PassControlOf(configuration_);
    probe_ = ImportAt(model_, compile_.import, of_data_, configuration_.Text("data.train"));
    NoteOverriddenKeys(configuration_, made_.notes);
    compile_.recipe = RecipeOf(configuration_, model_, graph(), 0, made_.notes);
    const LossTerm& loss = compile_.recipe.losses.front();
    made_.loss = loss.graph != nullptr      ? loss.graph->name()
                 : loss.type == "algorithm" ? loss.ToString()
                 : loss.type == "output"    ? "output(" + loss.output + ")"
                                            : loss.type + "(" + loss.output + ", " + loss.TargetName() + ")";
    made_.options = TrainerOptionsOf(configuration_, compile_.recipe, graph(), probe_.batch > 0 ? probe_.batch : kDefaultBatch);
    SetSaves(configuration_, made_);
  }

  void TakeFrozenWeights() {
    if (frozen_ == nullptr || planned_ != nullptr) return;
    model_ = WithFrozenWeights(model_, compile_, *frozen_, made_.frozen);
    if (!made_.frozen.empty()) probe_ = Import(model_, compile_.import);
  }

  // Another number of threads could give other bits, and a run may be resumed on a machine with another number of cores.
  void DecideForResumes() {
    std::vector<std::string> noted_before;
    const NamedDevices named = DevicesOf(configuration_, noted_before);
    if (!named.free.empty() && TopologyOf(configuration_).local_world == 1) made_.notes.push_back(named.free);
    const Recipe& recipe = compile_.recipe;
    if (recipe.devices > 1 && !configuration_.is_set("devices.use")) made_.decided["devices.use"] = "cpu:" + std::to_string(recipe.devices);
    if (named.devices.kind == DeviceKind::kCpu && configuration_.Integer("devices.threads") == 0)
      made_.decided["devices.threads"] = std::to_string(recipe.threads);
    if (recipe.placed_stages > 0) made_.decided["devices.place"] = kPlaceByFile;
  }

  void LoadData() {
    DataOptions data = DataOptionsOf(configuration_);
    feeds_ = BySamples(FeedsOfEntry(model_, compile_, {EntryKind::kStep, 0}), probe_.batch);
    CheckMetrics(made_.options, compile_.recipe, probe_, feeds_);
    SetTargets(feeds_, compile_.recipe, graph(), data);
    try {
      made_.data = LoadTrainingData(data, feeds_, configuration_.Integer("train.seed"));
    } catch (const Error& error) {
      // The data loader knows the flag, but not the file that set it.
      const Key* key = FindFlag(error.where());
      if (error.code() == ErrorCode::kShape || error.code() == ErrorCode::kData) ThrowWithGuess(error);
      if (key == nullptr || !configuration_.is_set(key->name)) throw;
      throw Error(error.code(), error.message(), Escaped(configuration_.origin(key->name).ToString(), 4096), error.help());
    }
    made_.notes.insert(made_.notes.end(), made_.data.notes.begin(), made_.data.notes.end());
    Reading(configuration_, "loss.name", [&] { WeighClasses(configuration_, made_.data, data.classes, compile_.recipe, made_.notes); });
    const bool has_eval = made_.data.eval.rows() > 0;
    if (!has_eval || made_.options.evaluate.unit == Interval::Unit::kNever) CheckNothingIsMeasured(configuration_, has_eval, made_.notes);
    made_.options.batch = std::min(made_.options.batch, made_.data.train.rows());
  }

  // If the target does not fit a loss that nobody has chosen, the loss may be what is wrong.
  [[noreturn]] void ThrowWithGuess(const Error& error) const {
    const auto guessed = std::ranges::find_if(
        made_.notes, [](const std::string& note) { return note.starts_with("loss ") && note.find("[guessed") != std::string::npos; });
    if (guessed == made_.notes.end()) throw error;
    const LossTerm& loss = compile_.recipe.losses.front();
    const Value& output = OutputOf(loss, graph());
    const bool may_be_classes = loss.type == "mse" && output.shape.rank() > 2;
    const std::string words = "the loss " + made_.loss + " was guessed from the output " + Escaped(output.name) + " " +
                              output.shape.ToString() + ", because there is no --loss";
    const std::string instead =
        "(" + Escaped(output.name) + ", " + Escaped(loss.TargetName()) + ", class_axis=" + std::to_string(output.shape.rank() - 1) + ")";
    throw Error(error.code(), error.message(), error.where(),
                words + (may_be_classes ? "; for classes or tokens: --loss 'cross_entropy" + instead + "'" : "") +
                    (error.help().empty() ? "" : "   otherwise: " + error.help()));
  }

  // The number of updates, on which the schedule depends, and an entry for each size that a batch has.
  void PlanEntries() {
    const int64_t rows = made_.data.train.rows(), batch = made_.options.batch, accumulate = compile_.recipe.accumulate;
    const int64_t per_epoch = (rows + batch - 1) / batch;
    if (per_epoch < accumulate) {
      made_.notes.push_back("update  once per epoch, which has " + Counted(per_epoch, "batch", "batches") + ": fewer than the " +
                            std::to_string(accumulate) + " of an update");
    }
    const int64_t updates =
        made_.options.updates > 0 ? made_.options.updates : UpdateRule{accumulate, per_epoch}.UpdatesOf(per_epoch * made_.options.epochs);
    // The file's own training algorithm has its own learning rate, if any.
    made_.has_rate = !compile_.recipe.UsesFileAlgorithm();
    compile_.recipe.schedule = !made_.has_rate ? Schedule{"constant", 0, {}} : ScheduleOf(configuration_, updates);
    for (const int64_t size : BatchSizes(rows, batch)) compile_.entries.push_back({EntryKind::kStep, size});
    if (made_.data.eval.rows() == 0) return;
    for (const int64_t size : BatchSizes(made_.data.eval.rows(), EvaluationBatch(made_.options)))
      compile_.entries.push_back({EntryKind::kEval, size});
  }

  void CompilePlan() {
    const Stopwatch time;
    made_.plan = std::make_shared<const Plan>(planned_ != nullptr ? planned_->Complete(configuration_, model_, compile_, made_.report)
                                                                  : Compile(model_, compile_, &made_.report));
    CheckMemoryLimit(configuration_, model_, compile_, *made_.plan);
    for (MetricSpec& spec : made_.options.metrics) {
      spec.ReadLikeLoss(made_.plan->losses);
      CheckMetric(spec, graph(), feeds_, made_.data.eval.rows() > 0 ? made_.data.eval : made_.data.train, configuration_);
    }
    const bool evaluates = made_.data.eval.rows() > 0;
    made_.options.loss_weight = LossWeightOf(made_.plan->losses, made_.data.train, evaluates ? &made_.data.eval : nullptr);
    for (std::string& line : WeightNotes(model_, *made_.plan)) made_.notes.push_back(std::move(line));
    if (const std::string line = FunctionNote(model_); !line.empty() && !configuration_.has_value("model.surrogate"))
      made_.notes.push_back(line);
    if (const std::string line = TailLine(configuration_, made_.report, compile_.recipe.device); !line.empty()) made_.notes.push_back(line);
    if (const std::string line = RecomputedLine(made_.report, compile_.recipe.recompute); !line.empty()) made_.notes.push_back(line);
    AddForecast(configuration_, model_, compile_, *made_.plan, made_.report, made_.notes);
    made_.compile_seconds = time.seconds();
    RefuseNothingToTrain(made_.report, made_.model_path);
  }

  Configuration& configuration_;
  const RecipePlan* const planned_;
  const FrozenSource* const frozen_;
  Model model_;
  ImportedGraph probe_;  // of the model at some batch size
  CompileOptions compile_;
  std::map<std::string, int64_t> of_data_;  // extents that the arrays of the data have told
  std::vector<Feed> feeds_;                 // by samples
  TrainingSetUp made_;
};

}  // namespace

TrainingSetUp SetUpTraining(Configuration& configuration, std::optional<RecipePlan> planned, const FrozenSource* frozen) {
  DropUnfitPlacement(configuration);
  ApplyMicroBatch(configuration);
  DropOptionsOfOthers(configuration);
  if (!configuration.Text("model.plan").empty()) {
    if (!planned) planned.emplace(configuration.Text("model.plan"));
    planned->CheckModel(configuration);
    // A plan has no obstacles.
    return SetUpWork(configuration, &*planned, nullptr).Make();
  }
  TrainingSetUp made;
  ReportingAllObstacles(configuration, [&] { made = SetUpWork(configuration, nullptr, frozen).Make(); });
  return made;
}

}  // namespace gradloom
