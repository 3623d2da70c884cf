#include "tools/run/set_up.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "compiler/passes/loss_info.h"
#include "runtime/base/error.h"
#include "runtime/base/name_pattern.h"
#include "runtime/base/nearest.h"
#include "runtime/checkpoint/weight_files.h"
#include "tools/run/device_forecast.h"
#include "tools/run/job.h"
#include "tools/run/memory_limit.h"
#include "tools/run/micro_batch.h"
#include "tools/run/model_options.h"
#include "tools/run/named_devices.h"
#include "tools/run/node_placement.h"
#include "tools/run/obstacles.h"
#include "tools/run/optimizer_options.h"
#include "tools/run/plan_recipe.h"
#include "tools/run/recipe.h"
#include "tools/run/stored_tensors.h"
#include "tools/run/trained_model.h"
#include "tools/screen/shell_word.h"

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kDefaultBatch = 32;

std::string TargetOf(const LossTerm& term) { return term.target.empty() ? "target" : term.target; }

const Value& OutputOf(const LossTerm& term, const Graph& graph) {
  for (const ValueId id : graph.outputs) {
    if (graph.value(id).name == term.output) return graph.value(id);
  }
  return graph.value(graph.outputs.front());
}

}  // namespace

// Without locks a process may take any batch of the run.
bool ReadsOnDemand(const Configuration& configuration) {
  return TopologyOf(configuration).world > 1 && configuration.Text("train.sync") != "hogwild";
}

namespace {

DataOptions DataOptionsOf(const Configuration& configuration) {
  DataOptions options{.train = configuration.Text("data.train"),
                      .eval = configuration.Text("data.eval"),
                      .eval_split = configuration.Text("data.eval_split"),
                      .format = configuration.Text("data.format")};
  if (options.train.empty()) throw Error(ErrorCode::kConfig, "no training data is given", "", "pass a file: --data train.csv");
  for (const auto& [name, columns] : configuration.Named("data.map")) options.columns[name] = columns[0];
  options.transforms = configuration.Named("data.transform");
  options.on_demand = ReadsOnDemand(configuration);
  return options;
}

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
  options.evaluate = Interval::Parse(configuration.Text("eval.every"), "eval.every");
  if (options.evaluate.unit == Interval::Unit::kSeconds) {
    throw Error(ErrorCode::kConfig, "the evaluation interval must be in epochs or updates, so that a run can be repeated",
                Escaped(configuration.origin("eval.every").place, 4096), "use --eval-every 1ep");
  }
  options.metrics = MetricsOf(configuration, recipe, graph);
  options.patience = configuration.Integer("train.early_stop");
  options.save = Interval::Parse(configuration.Text("checkpoint.every"), "checkpoint.every");
  options.skip_non_finite = configuration.Text("train.on_nan") == "skip";
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
  }
  return options;
}

// Throws Error(kConfig) for a name that is not in `known`.
void CheckName(const std::string& name, const std::vector<std::string>& known, const std::string& message, const std::string& where) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  std::string all;
  for (const std::string& other : known) all += (all.empty() ? "" : ", ") + Escaped(other);
  const std::string near = Nearest(name, known);
  throw Error(ErrorCode::kConfig, message, where,
              (near.empty() ? "" : "did you mean '" + Escaped(near) + "'?   ") + ("expected one of: " + all));
}

// Checks before the run what the first evaluation would find.
void CheckMetrics(const TrainerOptions& options, const Graph& graph, const std::vector<Feed>& feeds) {
  std::vector<std::string> outputs, inputs, measured{"eval/loss"};
  for (const ValueId id : graph.outputs) outputs.push_back(graph.value(id).name);
  for (const Feed& feed : feeds) inputs.push_back(feed.name);
  for (const MetricSpec& spec : options.metrics) {
    const std::string where = "metric " + Escaped(spec.name);
    CheckName(spec.output, outputs, "the model has no output '" + Escaped(spec.output) + "'", where);
    CheckName(spec.target, inputs, "the model has no input or target '" + Escaped(spec.target) + "'", where);
    measured.push_back("eval/" + spec.shown());
    // A part of a metric, which is known only once values are computed.
    if (options.watch.name.starts_with(spec.shown() + "/")) measured.push_back("eval/" + options.watch.name);
  }
  CheckName("eval/" + options.watch.name, measured,
            "'" + Escaped(options.watch.name) + "' is not measured, so it cannot select the best model", "eval.best");
}

// Checks the shapes before the run, once it is known how the metric is read.
void CheckShapes(const MetricSpec& spec, const Graph& graph, const std::vector<Feed>& feeds, const Configuration& configuration) {
  const auto output =
      std::find_if(graph.outputs.begin(), graph.outputs.end(), [&](ValueId id) { return graph.value(id).name == spec.output; });
  const auto target = std::find_if(feeds.begin(), feeds.end(), [&](const Feed& feed) { return feed.name == spec.target; });
  if (output == graph.outputs.end() || target == feeds.end()) return;  // CheckMetrics has reported it
  try {
    spec.CheckShapes({graph.value(*output).dtype, graph.value(*output).shape, nullptr}, {target->dtype, target->shape, nullptr});
  } catch (const Error& error) {
    throw Error(error.code(), error.message(), Escaped(configuration.origin("eval.metric").place, 4096), error.help());
  }
}

// Checks keys that need an evaluation if there is no data for one.
void CheckNothingIsMeasured(const Configuration& configuration) {
  const std::pair<const char*, bool> keys[] = {{"eval.metric", !configuration.Texts("eval.metric").empty()},
                                               {"train.early_stop", configuration.Integer("train.early_stop") > 0},
                                               {"schedule.plateau_patience", configuration.has_value("schedule.plateau_patience")},
                                               {"eval.best", !configuration.Text("eval.best").empty()}};
  for (const auto& [name, asked] : keys) {
    if (!asked) continue;
    throw Error(ErrorCode::kConfig, std::string(FindKey(name)->flag) + " needs evaluation data, but there is none",
                Escaped(configuration.origin(name).place, 4096), "use --eval-split 20% to hold back a part of the training data");
  }
}

}  // namespace

std::map<std::string, ClassRange> ClassesOf(const Recipe& recipe, const Graph& graph) {
  std::map<std::string, ClassRange> classes;
  for (const LossTerm& term : recipe.losses) {
    if (graph.outputs.empty()) continue;
    const LossInfo loss{
        .type = term.type, .classes = TargetIsClass(term), .class_axis = term.class_axis, .ignore_index = term.ignore_index};
    if (const auto range = ClassesOf(loss, OutputOf(term, graph).shape)) classes[TargetOf(term)] = *range;
  }
  return classes;
}

std::set<std::string> TargetsAmong(const std::vector<Feed>& feeds, const Graph& model) {
  std::set<std::string> targets;
  for (const Feed& feed : feeds) {
    const auto is_it = [&](ValueId id) { return model.value(id).name == feed.name; };
    if (std::none_of(model.inputs.begin(), model.inputs.end(), is_it)) targets.insert(feed.name);
  }
  return targets;
}

Dataset EvaluationDataOf(const Configuration& configuration, const std::vector<Feed>& feeds, const std::set<std::string>& targets,
                         const std::map<std::string, ClassRange>& classes, std::vector<std::string>& notes) {
  if (configuration.Text("data.eval").empty() && configuration.Text("data.eval_split").empty()) {
    throw Error(ErrorCode::kConfig, "no data is given, and the run has no evaluation data", "", "pass a file: --data test.csv");
  }
  DataOptions options = DataOptionsOf(configuration);
  options.targets = targets;
  options.classes = classes;
  TrainingData data = LoadTrainingData(options, feeds, configuration.Integer("train.seed"));
  notes.insert(notes.end(), data.notes.begin(), data.notes.end());
  return std::move(data.eval);
}

namespace {

// Errors name the origin of the key.
MetricSpec MetricAt(const Configuration& configuration, const std::string& text) {
  try {
    MetricSpec spec = MetricSpec::Parse(text);
    Metric::Make(spec);
    return spec;
  } catch (const Error& error) {
    throw Error(error.code(), error.message(), Escaped(configuration.origin("eval.metric").place, 4096), error.help());
  }
}

// The configured metrics, and the one that selects the best model if it is not among them.
std::vector<MetricSpec> WantedMetrics(const Configuration& configuration) {
  std::vector<MetricSpec> wanted;
  for (const std::string& text : configuration.Texts("eval.metric")) wanted.push_back(MetricAt(configuration, text));
  const std::string& best = configuration.Text("eval.best");
  if (best.empty()) return wanted;
  const std::string watched = Watch::Parse(best).name, name = watched.substr(0, watched.find('/'));
  const bool known = name == "loss" || std::any_of(wanted.begin(), wanted.end(), [&](const MetricSpec& spec) { return spec.name == name; });
  const std::vector<std::string> names = MetricNames();
  if (!known && std::find(names.begin(), names.end(), name) != names.end()) wanted.push_back({.name = name});
  return wanted;
}

}  // namespace

std::vector<MetricSpec> MetricsOf(const Configuration& configuration, const Recipe& recipe, const Graph& graph) {
  std::vector<MetricSpec> metrics;
  for (MetricSpec& spec : WantedMetrics(configuration)) {
    const LossTerm* about = &recipe.losses.front();
    for (const LossTerm& term : recipe.losses) {
      if (!spec.target.empty() && TargetOf(term) == spec.target) about = &term;
    }
    const bool names_none = about->graph != nullptr || about->type == "algorithm" || about->type == "output";
    if (names_none && spec.target.empty()) {
      throw Error(ErrorCode::kConfig, "the metric '" + Escaped(spec.name) + "' needs an output and a target, which this loss does not name",
                  "eval.metric", "write --metric '" + Escaped(spec.name) + "(OUTPUT, TARGET)'");
    }
    if (spec.output.empty()) spec.output = OutputOf(*about, graph).name;
    if (spec.target.empty()) spec.target = TargetOf(*about);
    metrics.push_back(std::move(spec));
  }
  DisambiguateNames(metrics);
  return metrics;
}

namespace {

TrainingSetUp SetUp(const Configuration& configuration, const std::optional<RecipePlan>& planned = std::nullopt) {
  TrainingSetUp made;
  const bool by_plan = planned.has_value();
  made.model_path = by_plan ? planned->path() : ModelPathOf(configuration);
  const Model model = by_plan ? planned->model() : Model::Load(made.model_path, LoadOptionsOf(configuration));
  CompileOptions compile;
  compile.import = ImportOptionsOf(configuration);
  // A symbolic batch needs some size until the data is known.
  if (compile.import.batch == 0) compile.import.batch = kDefaultBatch;
  compile.control = PassControlOf(configuration);
  const ImportedGraph probe = Import(model, compile.import);
  NoteOverriddenKeys(configuration, made.notes);
  compile.recipe = RecipeOf(configuration, model, *probe.graph, 0, made.notes);
  std::vector<std::string> previous_notes;
  const NamedDevices named = DevicesOf(configuration, previous_notes);
  if (!named.free.empty() && TopologyOf(configuration).local_world == 1) made.notes.push_back(named.free);
  if (compile.recipe.devices > 1 && !configuration.is_set("devices.use"))
    made.decided["devices.use"] = "cpu:" + std::to_string(compile.recipe.devices);
  // Stored with the run: another number of threads could give other bits, and the run may be resumed on a machine with another number of
  // cores.
  if (named.devices.kind == DeviceKind::kCpu && configuration.Integer("devices.threads") == 0)
    made.decided["devices.threads"] = std::to_string(compile.recipe.threads);
  if (compile.recipe.placed_stages > 0) made.decided["devices.place"] = kPlaceByFile;
  const LossTerm& loss = compile.recipe.losses.front();
  made.loss = loss.graph != nullptr      ? loss.graph->name()
              : loss.type == "algorithm" ? loss.ToString()
                                         : loss.type + "(" + loss.output + ", " + TargetOf(loss) + ")";
  const int64_t batch = probe.batch > 0 ? probe.batch : kDefaultBatch;
  made.options = TrainerOptionsOf(configuration, compile.recipe, *probe.graph, batch);

  DataOptions data = DataOptionsOf(configuration);
  data.classes = ClassesOf(compile.recipe, *probe.graph);
  const std::vector<Feed> feeds = FeedsOfEntry(model, compile, {EntryKind::kStep, 0});
  CheckMetrics(made.options, *probe.graph, feeds);
  data.targets = TargetsAmong(feeds, *probe.graph);
  try {
    made.data = LoadTrainingData(data, feeds, configuration.Integer("train.seed"));
  } catch (const Error& error) {
    // The data loader knows the flag, but not the file that set it.
    const Key* key = FindFlag(error.where());
    if (key == nullptr || !configuration.is_set(key->name)) throw;
    throw Error(error.code(), error.message(), Escaped(configuration.origin(key->name).ToString(), 4096), error.help());
  }
  made.notes.insert(made.notes.end(), made.data.notes.begin(), made.data.notes.end());

  const int64_t train_rows = made.data.train.rows(), eval_rows = made.data.eval.rows();
  if (eval_rows == 0) CheckNothingIsMeasured(configuration);
  made.options.batch = std::min(batch, train_rows);
  const int64_t batches = (train_rows + made.options.batch - 1) / made.options.batch;
  if (made.options.updates == 0 && batches * made.options.epochs < compile.recipe.accumulate) {
    throw Error(ErrorCode::kConfig,
                "an update needs " + std::to_string(compile.recipe.accumulate) + " batches, but the run has " +
                    std::to_string(batches * made.options.epochs) + " in total: nothing would be trained",
                Escaped(configuration.origin("train.accumulate").place, 4096),
                "use --accumulate " + std::to_string(batches * made.options.epochs) + " or less, or more --epochs");
  }
  const int64_t updates = made.options.updates > 0 ? made.options.updates : batches * made.options.epochs / compile.recipe.accumulate;
  // The file's own training algorithm has its own learning rate, if any.
  compile.recipe.schedule = compile.recipe.UsesFileAlgorithm() ? Schedule{"constant", 0, {}} : ScheduleOf(configuration, updates);
  for (const int64_t size : BatchSizes(train_rows, made.options.batch)) compile.entries.push_back({EntryKind::kStep, size});
  if (eval_rows > 0) {
    for (const int64_t size : BatchSizes(eval_rows, made.options.batch)) compile.entries.push_back({EntryKind::kEval, size});
  }
  const auto start = Clock::now();
  made.plan = std::make_shared<const Plan>(by_plan ? planned->Complete(configuration, model, compile, made.report)
                                                   : Compile(model, compile, &made.report));
  CheckMemoryLimit(configuration, model, compile, *made.plan);
  for (MetricSpec& spec : made.options.metrics) {
    spec.ReadLikeLoss(made.plan->losses);
    CheckShapes(spec, *probe.graph, feeds, configuration);
  }
  made.options.loss_weight = LossWeightOf(made.plan->losses, made.data.train, eval_rows > 0 ? &made.data.eval : nullptr);
  if (const std::string line = TailLine(made.report, compile.recipe.device); !line.empty()) made.notes.push_back(line);
  if (const std::string line = RecomputedLine(made.report, compile.recipe.recompute); !line.empty()) made.notes.push_back(line);
  AddForecast(configuration, model, compile, *made.plan, made.report, made.notes);
  made.compile_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (made.report.trained_elements == 0) {
    throw Error(ErrorCode::kConfig, "there is nothing to train: every weight of the model is frozen", Escaped(made.model_path, 4096),
                "gradloom check " + ShellWord(made.model_path) + "   explains each");
  }
  return made;
}

}  // namespace

TrainingSetUp SetUpTraining(Configuration& configuration, std::optional<RecipePlan> planned) {
  ApplyMicroBatch(configuration);
  if (!configuration.Text("model.plan").empty()) {
    if (!planned) planned.emplace(configuration.Text("model.plan"));
    planned->CheckModel(configuration);
    // A plan has no obstacles.
    return SetUp(configuration, planned);
  }
  TrainingSetUp made;
  ReportingAllObstacles(configuration, [&] { made = SetUp(configuration); });
  return made;
}

namespace {

// The names of the parameters for which `is` is true, shortened; "" if there are none.
std::string ParameterNames(const Session& session, const std::function<bool(const std::string& name)>& is) {
  constexpr size_t kMax = 8;
  std::string names;
  size_t count = 0;
  for (const StateTensor& tensor : session.plan().state) {
    if (tensor.kind != StateKind::kParameter || !is(tensor.name)) continue;
    if (count++ < kMax) names += (names.empty() ? "" : ", ") + Escaped(tensor.name, 80);
  }
  return count > kMax ? names + " and " + std::to_string(count - kMax) + " more" : names;
}

void CheckPatterns(const std::vector<std::string>& except, const StoredTensors& stored) {
  std::vector<std::string> names;
  for (const auto& [name, type] : stored.types()) names.push_back(name);
  for (const std::string& pattern : except) {
    if (PatternMatchesAny(pattern, names)) continue;
    const std::string near = Nearest(pattern, names);
    throw Error(ErrorCode::kConfig, "--init-except '" + Escaped(pattern) + "' matches none of its tensors", Escaped(stored.path(), 4096),
                near.empty() ? "gradloom inspect " + ShellWord(stored.path()) + "   lists them" : "did you mean '" + Escaped(near) + "'?");
  }
}

}  // namespace

void LoadWeights(Session& session, const std::string& path, const std::vector<std::string>& except, std::vector<std::string>& notes) {
  const StoredTensors stored(path);
  CheckPatterns(except, stored);
  int64_t loaded = 0;
  NonFiniteWeights non_finite;
  for (const auto& [name, type] : stored.types()) {
    const int index = session.plan().FindState(name);
    if (index < 0 || MatchesAnyPattern(except, name)) continue;
    // A new run counts its updates from 0, and foreign moments would be bias-corrected as if they had been accumulated since then.
    const StateTensor& state = session.plan().state[static_cast<size_t>(index)];
    if (state.kind != StateKind::kParameter && state.kind != StateKind::kStatistic) continue;
    try {
      const Tensor value = AsWeight(stored.Read(name), state.dtype);
      session.Set(name, value.view());
      non_finite.Add(name, value.view());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kShape) throw;
      throw Error(ErrorCode::kCheckpoint, error.message(), Escaped(path, 4096),
                  "use weights of this model, or begin with the tensor as the model has it: --init-except " + ShellWord(name));
    }
    ++loaded;
  }
  if (loaded == 0) {
    throw Error(ErrorCode::kCheckpoint, "none of its tensors is trained by the model", Escaped(path, 4096),
                "the model has: " + ParameterNames(session, [](const std::string&) { return true; }));
  }
  if (const std::string line = non_finite.Warning(path); !line.empty()) notes.push_back(line);
  const auto is_kept = [&](const std::string& name) { return !stored.types().contains(name) || MatchesAnyPattern(except, name); };
  if (const std::string kept = ParameterNames(session, is_kept); !kept.empty())
    notes.push_back("weights begin as the model has them, not from " + Escaped(path, 4096) + ": " + kept);
  if (const std::string line = UnusedTensors(session.plan(), stored); !line.empty())
    notes.push_back("warning " + line +
                    "   [frozen weights are those of the model; to begin with all of a run's weights, train its export/model.onnx]");
}

}  // namespace gradloom
