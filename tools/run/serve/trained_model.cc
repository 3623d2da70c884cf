#include "tools/run/serve/trained_model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "compiler/compile.h"
#include "compiler/onnx/export/export.h"
#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/listing.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/data/batches.h"
#include "runtime/data/image_rows.h"
#include "runtime/plan/average_state.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/sample_axes.h"
#include "runtime/session/shared_batches.h"
#include "tools/run/options/class_weights.h"
#include "tools/run/options/data_extents.h"
#include "tools/run/options/data_options.h"
#include "tools/run/options/metric_options.h"
#include "tools/run/options/model_options.h"
#include "tools/run/options/named_devices.h"
#include "tools/run/options/node_placement.h"
#include "tools/run/options/recipe.h"
#include "tools/run/serve/unfinished_run.h"
#include "tools/run/set_up.h"
#include "tools/run/train/run_folder.h"
#include "tools/run/train/training_job.h"
#include "tools/screen/shell_word.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDefaultBatch = 32;

// Room for the outputs of `rows` rows, of which these are some. Throws Error(kResource) if there is no memory for them, naming `data`.
std::map<std::string, Tensor> RoomFor(const std::map<std::string, Tensor>& some, int64_t rows, const std::string& data) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : some) bytes += WithRows(tensor.shape(), rows).elements() * DTypeBytes(tensor.dtype());
  RequireHostMemory(bytes, "the predictions of " + Counted(rows, "row"), Escaped(data, 4096),
                    "predict fewer rows at once, or only their classes: --classes");
  std::map<std::string, Tensor> room;
  for (const auto& [name, tensor] : some) room.emplace(name, Tensor(tensor.dtype(), WithRows(tensor.shape(), rows)));
  return room;
}

// Copies rows to their place, from row `first` on, in a tensor with room for all.
void PlaceRows(const Tensor& rows, int64_t first, Tensor& all) {
  const int64_t row_bytes = rows.bytes() / std::max<int64_t>(rows.shape()[0], 1);
  std::memcpy(static_cast<std::byte*>(all.data()) + first * row_bytes, rows.data(), static_cast<size_t>(rows.bytes()));
}

// Whether tensors of these shapes can follow each other along the first axis: only their numbers of rows may differ.
bool HaveEqualRows(const Shape& a, const Shape& b) { return a.rank() == b.rank() && std::equal(a.begin() + 1, a.end(), b.begin() + 1); }

}  // namespace

std::string PlanPathOf(const std::string& path) {
  const bool model = path.ends_with(".onnx") || path.ends_with(".onnxtxt");
  if ((model || path.ends_with(".toml")) && fs::is_regular_file(path)) {
    throw Error(ErrorCode::kPlan, std::string("this is ") + (model ? "an ONNX model" : "a configuration") + ", not a run or a plan",
                Escaped(path, 4096), "train it, and pass the folder of the run, such as runs/exp1; or compile it to a plan");
  }
  const bool file = fs::is_regular_file(path) || (path.ends_with(".plan") && !fs::is_directory(path));
  return file ? path : RunFolder::Open(path).PlanPath();
}

std::string UnusedTensors(const Plan& plan, const StoredTensors& stored, const std::set<std::string>& known) {
  Listing names(8);
  std::unordered_set<std::string_view> states;
  for (const StateTensor& state : plan.state) states.insert(state.name);
  for (const auto& [name, type] : stored.types()) {
    // Optimizer state is not reported if only weights are requested, nor that of a weight which this model does not train.
    const std::string owner = name.substr(0, name.rfind('/'));
    const bool is_state = name.starts_with("gradloom/") || states.contains(owner) || (owner != name && stored.types().contains(owner));
    if (states.contains(name) || is_state || known.contains(name)) continue;
    names.Add("'" + Escaped(name, 80) + "'");
  }
  if (names.count() == 0) return "";
  return "weights " + Escaped(stored.path(), 4096) + " has " +
         (names.count() == 1 ? "a tensor" : std::to_string(names.count()) + " tensors") +
         " that the model does not have, ignored: " + names.text();
}

std::map<std::string, TensorView> TypesOfWeights(const Plan& plan, const StoredTensors& stored, std::vector<std::string>& notes) {
  const std::string where = Escaped(stored.path(), 4096);
  std::map<std::string, TensorView> types;
  const auto add = [&](const std::string& name, const TensorView& type, DType dtype, const Shape& shape) {
    if (type.shape != shape) {
      throw Error(ErrorCode::kCheckpoint,
                  "tensor '" + Escaped(name) + "' is " + type.shape.ToString() + ", but the plan has " + shape.ToString(), where,
                  "use the weights of the run that the plan belongs to");
    }
    if (IsFloating(dtype) != IsFloating(type.dtype)) {
      throw Error(
          ErrorCode::kCheckpoint,
          "tensor '" + Escaped(name) + "' is " + std::string(DTypeName(type.dtype)) + ", but the plan has " + std::string(DTypeName(dtype)),
          where, "use the weights of the run that the plan belongs to");
    }
    types.emplace(name, type);
  };
  for (const StateTensor& tensor : plan.state) {
    if (tensor.kind != StateKind::kParameter && tensor.kind != StateKind::kStatistic) continue;
    const auto found = stored.types().find(tensor.name);
    if (found == stored.types().end()) {
      throw Error(ErrorCode::kCheckpoint, "the weights have no tensor '" + Escaped(tensor.name) + "', which the plan trains", where,
                  "use the weights of the run that the plan belongs to");
    }
    add(tensor.name, found->second, tensor.dtype, tensor.shape);
  }
  std::set<std::string> frozen;
  for (const auto& [name, kept] : KeptTypes(plan.model)) {
    const auto found = stored.types().find(name);
    if (found == stored.types().end()) continue;
    add(name, found->second, kept.dtype, kept.shape);
    frozen.insert(name);
  }
  if (const std::string line = UnusedTensors(plan, stored, frozen); !line.empty()) notes.push_back(line);
  return types;
}

std::map<std::string, std::string> TrainedTensors(const Plan& plan, const StoredTensors& stored, bool averages,
                                                  std::vector<std::string>& notes) {
  std::map<std::string, std::string> tensors;
  for (const StateTensor& state : plan.state) {
    if (state.kind == StateKind::kParameter || state.kind == StateKind::kStatistic) tensors.emplace(state.name, state.name);
  }
  for (const auto& [name, type] : KeptTypes(plan.model)) tensors.emplace(name, name);
  if (!averages) return tensors;
  bool any = false;
  for (auto& [weight, tensor] : tensors) {
    tensor = TrainedTensor(stored.types(), weight, [&](const std::string& name) { return tensors.contains(name); });
    any |= tensor != weight;
  }
  if (any) notes.push_back("weights their moving averages; --no-ema takes the weights of the last update");
  return tensors;
}

std::map<std::string, Tensor> WeightsOf(const Plan& plan, const StoredTensors& stored, bool averages, std::vector<std::string>& notes) {
  const std::map<std::string, TensorView> types = TypesOfWeights(plan, stored, notes);
  const std::map<std::string, std::string> tensors = TrainedTensors(plan, stored, averages, notes);
  int64_t bytes = 0;
  for (const auto& [name, type] : types) bytes += type.bytes();
  RequireHostMemory(bytes, "the weights", Escaped(stored.path(), 4096), "end other programs");
  NonFiniteWeights non_finite;
  std::map<std::string, Tensor> values;
  for (const auto& [name, type] : types) non_finite.Add(name, values.emplace(name, stored.Read(tensors.at(name))).first->second.view());
  if (const std::string line = non_finite.Warning(stored.path()); !line.empty()) notes.push_back(line);
  return values;
}

struct TrainedModel::Compiled {
  std::unique_ptr<Model> model;
  CompileOptions options;
  ExecutorOptions executor;
  ImportedGraph graph;
  std::vector<Feed> feeds;  // by samples
  int64_t batch = 0;

  // Starts a session for this number of rows. `job`: processes that each have such a session, or share one; null: only this process.
  Session Start(EntryKind kind, int64_t rows, const TrainingJob* job = nullptr) {
    batch = std::min(batch, rows);
    for (const int64_t size : BatchSizes(rows, batch)) options.entries.push_back({kind, size});
    auto plan = std::make_shared<const Plan>(Compile(*model, options));
    if (job != nullptr) job->CheckMemory(*plan, !job->shares_batches());
    if (job != nullptr && job->shares_batches()) executor.communicator = job->communicator();
    return Session(std::move(plan), {.executor = executor});
  }
};

namespace {

// The weights at the end of a run; nullopt if it has none. The error for damaged ones offers the newest checkpoint.
std::optional<StoredTensors> OpenFinalWeights(const RunFolder& run) {
  if (!fs::exists(run.StatePath())) return std::nullopt;
  try {
    return StoredTensors(run.StatePath(), Checkpoint::kMaxTensors);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCheckpoint) throw;
    const FoundCheckpoint newest = FindNewestCheckpoint(run.File("checkpoints"));
    if (!newest.checkpoint) throw;
    throw Error(error.code(), error.message(), error.where(),
                "use the newest checkpoint, " + Escaped(newest.checkpoint->folder(), 4096) + " (--from " +
                    ShellWord(fs::path(newest.checkpoint->folder()).filename().string()) + ")");
  }
}

}  // namespace

StoredTensors OpenWeights(const TrainedSource& source, std::vector<std::string>& notes) {
  if (!source.weights.empty()) return StoredTensors(source.weights);
  if (fs::is_regular_file(source.path)) {
    throw Error(ErrorCode::kConfig, "a plan alone has no trained weights", Escaped(source.path, 4096),
                "add --weights FILE.safetensors, or pass the folder of a run");
  }
  const RunFolder run = RunFolder::Open(source.path);
  const std::string folder = run.File("checkpoints");
  if (!source.from.empty()) {
    std::string name = source.from;
    if (name == "best") {
      if (!fs::exists(folder + "/BEST")) {
        throw Error(ErrorCode::kCheckpoint, "the run has no best checkpoint: nothing was evaluated", Escaped(folder, 4096),
                    "omit --from to use the newest");
      }
      const std::string target = ReadWholeFile(folder + "/BEST", 4096);
      name = target.substr(0, target.find('\n'));
    }
    if (ParseCheckpointName(name) != CheckpointName::kCheckpoint) {
      throw Error(ErrorCode::kCheckpoint, "'" + Escaped(name) + "' is not the name of a checkpoint", Escaped(folder, 4096),
                  "expected step-000500, or best");
    }
    if (std::error_code error; !fs::exists(folder + "/" + name, error)) {
      const FoundCheckpoint newest = FindNewestCheckpoint(folder);
      throw Error(ErrorCode::kCheckpoint, "the checkpoint does not exist", Escaped(folder + "/" + name, 4096),
                  newest.checkpoint ? "the newest is --from " + fs::path(newest.checkpoint->folder()).filename().string() : "");
    }
    return StoredTensors(Checkpoint::Load(folder + "/" + name));
  }
  std::optional<StoredTensors> at_end = OpenFinalWeights(run);
  const auto trained_longer = [&](const Manifest& manifest) { return manifest.batch > at_end->batches(); };
  // Most often no checkpoint is newer, and none has to be read.
  if (at_end && std::ranges::none_of(ListCheckpoints(folder), trained_longer, &ListedCheckpoint::manifest)) return *std::move(at_end);
  FoundCheckpoint found = FindNewestCheckpoint(folder);
  if (at_end && (!found.checkpoint || !trained_longer(found.checkpoint->manifest()))) return *std::move(at_end);
  for (const SkippedCheckpoint& skipped : found.skipped) {
    // A run that goes on has unfinished ones at times.
    if (ParseCheckpointName(fs::path(skipped.path).filename().string()) == CheckpointName::kCheckpoint)
      notes.push_back("warning skipped " + Escaped(skipped.path, 4096) + ": " + skipped.why);
  }
  if (found.checkpoint) {
    notes.push_back(UnfinishedNote(run, *found.checkpoint));
    return StoredTensors(*std::move(found.checkpoint));
  }
  throw Error(ErrorCode::kCheckpoint, "the run has no checkpoint that can be loaded" + (notes.empty() ? "" : "; " + notes.back()),
              Escaped(source.path, 4096), "gradloom resume " + ShellWord(source.path) + "   continues it");
}

TrainedModel::TrainedModel(const TrainedSource& source, Configuration configuration) : configuration_(std::move(configuration)) {
  DropUnfitPlacement(configuration_);
  const Plan plan = ReadPlan(PlanPathOf(source.path), PlanTensors::kSkipped);
  losses_ = plan.losses;
  const StoredTensors weights = OpenWeights(source, notes_);
  weights_path_ = weights.path();
  if (fs::is_directory(source.path)) {
    const RunFolder folder = RunFolder::Open(source.path);
    recorded_.path = folder.File("data.json");
    recorded_.json = ReadWholeFile(recorded_.path);
    DataFromJson(recorded_.json, Escaped(recorded_.path, 4096), recorded_.columns, recorded_.fitted, recorded_.names);
  }
  const NamedTexts& map = configuration_.Named("data.map");
  // Older releases did not record that columns were guessed.
  for (const auto& [name, columns] : recorded_.columns) {
    if (map.empty()) recorded_.names.guessed.insert(name);
  }
  for (const auto& [name, columns] : map) {
    recorded_.columns[name] = columns[0];
    recorded_.names.guessed.erase(name);
  }
  model_ = Model::FromInfo(plan.model, WeightsOf(plan, weights, source.averages, notes_));
}

TrainedModel::Compiled TrainedModel::CompileFor(EntryKind kind, int64_t batch, const std::string& data) const {
  Compiled made;
  made.model = std::make_unique<Model>(*model_);
  made.options.exports = false;
  made.options.import = ImportOptionsOf(configuration_, *made.model);
  if (batch > 0) made.options.import.batch = batch;
  // A run may have a size of its own for evaluations and predictions, unless the command names one.
  const int64_t own = configuration_.Integer("eval.batch");
  const OriginKind named = configuration_.origin("data.batch").kind;
  if (batch == 0 && own > 0 && named != OriginKind::kFlag && named != OriginKind::kSet) made.options.import.batch = own;
  if (made.options.import.batch == 0) made.options.import.batch = kDefaultBatch;
  const OriginKind origin = configuration_.origin("model.shape").kind;
  std::map<std::string, int64_t> of_data;
  if (origin != OriginKind::kFlag && origin != OriginKind::kSet) {
    ImportOptions& import = made.options.import;
    // The data whose arrays tell extents is not a table.
    const ColumnMap columns = WithoutGuesses(recorded_.columns, recorded_.names);
    of_data = ExtentsOfData(*made.model, import, data, configuration_.Text("data.format"), columns);
    for (const auto& [symbol, extent] : of_data) import.shapes[symbol] = extent;
  }
  made.graph = ImportAt(*made.model, made.options.import, of_data, data);
  std::vector<std::string> notes;
  made.options.recipe = RecipeOf(configuration_, *made.model, *made.graph.graph, 0, notes);
  WeighClassesAsTrained(configuration_, losses_, made.options.recipe);
  made.executor = ExecutorOptionsOf(configuration_);
  // Nothing is updated, and the number of updates is unknown here.
  made.options.recipe.schedule = {"constant", made.options.recipe.optimizer.lr, {}};
  // The weights are constants now, so values that depend only on them are computed once.
  made.options.recipe.mode = GraphMode::kGraph;
  made.options.recipe.freeze = {"*"};
  made.options.recipe.trainable.clear();
  made.feeds = BySamples(FeedsOfEntry(*made.model, made.options, {kind, 0}), made.graph.batch);
  made.batch = made.graph.batch > 0 ? made.graph.batch : kDefaultBatch;
  return made;
}

Dataset TrainedModel::Load(const std::string& data, const Compiled& compiled, std::vector<std::string>& notes, DataOptions options) const {
  ChooseOnDemand(configuration_, options);
  return LoadFeeds({data, configuration_.Text("data.format")}, compiled.feeds, recorded_.columns, recorded_.fitted, notes, options,
                   recorded_.names);
}

TrainedModel::LanguageModel TrainedModel::StartLanguageModel() const {
  Compiled compiled = CompileFor(EntryKind::kPredict, 1);
  const std::string output = compiled.options.recipe.losses.front().output;
  const Graph& graph = *compiled.graph.graph;
  const auto scores = std::find_if(graph.outputs.begin(), graph.outputs.end(), [&](ValueId id) { return graph.value(id).name == output; });
  const std::vector<Feed>& feeds = compiled.feeds;
  bool fits = feeds.size() == 1 && feeds[0].dtype == DType::kInt64 && feeds[0].shape.rank() == 2 && feeds[0].batch_axis <= 0 &&
              scores != graph.outputs.end();
  Shape shape = fits ? graph.value(*scores).shape : Shape();
  // The scores of one text may be flattened.
  if (shape.rank() == 2) shape = Shape{1, shape[0], shape[1]};
  fits = fits && shape.rank() == 3 && shape[1] == feeds[0].shape[1];
  if (!fits) {
    throw Error(ErrorCode::kConfig, "not a language model: it does not map rows of tokens to scores of the next tokens",
                Escaped(model_->path()), "for other models, omit --generate and pass inputs with --data");
  }
  const std::string input = feeds[0].name;
  return {compiled.Start(EntryKind::kPredict, 1), input, output, shape[1], shape[2]};
}

void TrainedModel::CheckSame(const TrainingJob& job, const Dataset& rows, int64_t batch) const {
  job.CheckSame(
      "model and weights " + model_->hash() + "\n" + std::to_string(rows.rows()) + " rows\nbatches of " + std::to_string(batch) + "\n",
      "make sure that all processes read the same run and data, with the same command and release");
  job.EndSetUp();
}

namespace {

// The communicator for dividing batches; null if all processes run each batch together, or if there is only one.
Communicator* SharesBatches(const TrainingJob& job) { return job.shares_batches() ? nullptr : job.communicator().get(); }

}  // namespace

TrainedModel::Evaluation TrainedModel::Evaluate(const std::string& data, bool confusion, std::vector<std::string>& notes,
                                                const TrainingJob& job) const {
  Compiled compiled = CompileFor(EntryKind::kEval, 0, data);
  TrainerOptions options;
  options.metrics = MetricsOf(configuration_, compiled.options.recipe, *compiled.graph.graph);
  Evaluation made;
  MetricSpec compared = confusion ? ComparedClasses() : MetricSpec();
  DataOptions targets;
  SetTargets(compiled.feeds, compiled.options.recipe, *compiled.graph.graph, targets);
  const Dataset rows = !data.empty() ? Load(data, compiled, notes, std::move(targets))
                                     : EvaluationDataOf(configuration_, recorded_, compiled.feeds, targets, notes);
  Session session = compiled.Start(EntryKind::kEval, rows.rows(), &job);
  compared.threads = session.host_threads();
  if (confusion) made.confusion.emplace(std::move(compared));
  for (MetricSpec& spec : options.metrics) spec.ReadLikeLoss(session.plan().losses);
  options.loss_weight = LossWeightOf(session.plan().losses, rows);
  options.batch = compiled.batch;
  CheckSame(job, rows, options.batch);
  made.rows = rows.rows();
  made.values = EvaluateShared(session, rows, options, SharesBatches(job), made.confusion ? &*made.confusion : nullptr);
  if (made.confusion) {
    const int64_t count = made.confusion->classes();
    made.classes = NamesOfClasses(made.confusion->spec().target, count);
    made.classes.resize(static_cast<size_t>(count));  // the data may have named classes that this model does not have
  }
  return made;
}

MetricSpec TrainedModel::ComparedClasses() const {
  for (const LossInfo& loss : losses_) {
    const bool binary = loss.type == "bce" || loss.type == "bce_with_logits";
    if (loss.output.empty() || (!loss.classes && !TargetHasProbabilities(loss) && !binary)) continue;
    MetricSpec spec{.name = "confusion", .output = loss.output, .target = loss.target};
    spec.ReadLikeLoss({&loss, 1});
    return spec;
  }
  throw Error(ErrorCode::kConfig, "the model's loss does not compare an output with classes", "--confusion",
              "omit it; a model of numbers is measured by --metric rmse");
}

std::vector<std::string> TrainedModel::NamesOfClasses(const std::string& target, int64_t count) const {
  const auto found = recorded_.names.labels.find(target);
  // A folder of images has one target.
  std::vector<std::string> names = found != recorded_.names.labels.end() ? found->second : recorded_.names.classes;
  for (int64_t c = std::ssize(names); c < count; ++c) names.push_back(std::to_string(c));
  return names;
}

namespace {

// The loss with its class axis as it is in predictions.
LossInfo OfRows(LossInfo loss, const Predictions& predictions) {
  const auto found = predictions.moved.find(loss.output);
  if (found == predictions.moved.end()) return loss;
  const auto [moved, added] = found->second;
  const auto axis = NormalAxis(loss.class_axis, predictions.outputs.at(loss.output).shape().rank() - added);
  if (axis) loss.class_axis = *axis < moved ? *axis + 1 : *axis + added;
  return loss;
}

}  // namespace

void TrainedModel::ClassifyOutputs(const PredictionForm& form, bool named, Predictions& predictions) const {
  std::map<std::string, Tensor> made;  // an output may have the name of a target
  std::set<std::string> replaced;
  for (const LossInfo& loss : losses_) {
    const auto output = predictions.outputs.find(loss.output);
    // The first loss of a target classifies it.
    if (output == predictions.outputs.end() || replaced.contains(loss.output) || predictions.classes.contains(loss.target)) continue;
    const LossInfo of_rows = OfRows(loss, predictions);
    std::optional<PredictedClasses> predicted = PredictClasses(of_rows, output->second.view());
    if (!predicted) continue;
    if (form.probabilities) {
      const std::string name = loss.target + ".probabilities";
      const Tensor& each = made.emplace(name, *ClassProbabilities(of_rows, output->second.view())).first->second;
      if (named) {
        std::vector<std::string> names = NamesOfClasses(loss.target, each.shape()[each.shape().rank() - 1]);
        names.resize(static_cast<size_t>(each.shape()[each.shape().rank() - 1]));  // the data may have named more classes
        for (std::string& column : names) column = loss.target + "." + column;
        predictions.columns.emplace(name, std::move(names));
      }
    }
    replaced.insert(loss.output);
    predictions.classes.emplace(loss.target, named ? NamesOfClasses(loss.target, 0) : std::vector<std::string>());
    if (!form.classes) continue;
    made.emplace(loss.target, std::move(predicted->classes));
    made.emplace(loss.target + ".probability", std::move(predicted->probabilities));
  }
  for (const std::string& output : replaced) predictions.outputs.erase(output);
  for (auto& [name, tensor] : made) predictions.outputs.insert_or_assign(name, std::move(tensor));
  if (!made.empty()) return;
  throw Error(ErrorCode::kConfig, "the model's loss does not compare an output with classes",
              form.classes ? "--classes" : "--probabilities", "omit it to write the outputs as they are");
}

namespace {

// By row, where the images of a data set are; empty if it has none, or if they are named several times.
std::vector<std::string> FilesOfRows(const Dataset& data) {
  std::vector<std::string> files;
  for (const auto& [name, column] : data.lazy_columns()) {
    const std::vector<std::string>* paths = ImagePathsOf(*column.source);
    if (paths == nullptr) continue;
    if (!files.empty()) return {};
    for (const int64_t row : column.rows) files.push_back((*paths)[static_cast<size_t>(row)]);
  }
  return files;
}

// A fetched tensor of a batch with the samples along the first axis; as it is if it has none.
Tensor RowsOf(const Tensor& tensor, const Fetch& fetch, int64_t batch) {
  const auto [shape, axis] = ShapeBySamples(tensor.shape(), fetch.batch_axis, fetch.batch_inner, batch);
  const bool moves = axis > 0 && axis < shape.rank();
  return moves ? WithSamplesFirst({tensor.dtype(), shape, tensor.data()}, axis) : tensor.Reshaped(shape);
}

// The outputs of a batch, by `names`, which this sets. `predictions.moved` gets what RowsOf does.
std::vector<Tensor> OutputsOf(const std::map<std::string, Tensor>& fetched, const Entry& entry, std::vector<std::string>& names,
                              Predictions& predictions) {
  std::vector<Tensor> outputs;
  names.clear();
  for (const auto& [name, tensor] : fetched) {
    names.push_back(name);
    const Fetch& fetch = *std::find_if(entry.fetches.begin(), entry.fetches.end(), [&](const Fetch& of) { return of.name == name; });
    outputs.push_back(RowsOf(tensor, fetch, entry.batch));
    const int added = outputs.back().shape().rank() - tensor.shape().rank();
    if (fetch.batch_axis > 0 || added > 0) predictions.moved[name] = {fetch.batch_axis, added};
  }
  return outputs;
}

// Throws unless an output's rows for a batch can follow those for the first one. `where`: the data, which has `all` rows.
void CheckJoins(const std::string& output, const Shape& shape, int64_t batch, const Shape& first, int64_t all, const std::string& where) {
  const bool by_row = shape.rank() > 0 && shape[0] == batch;
  if (by_row && HaveEqualRows(first, shape)) return;
  const std::string why = by_row ? ", and " + first.ToString() + " for the first one" : ": it has no row per sample";
  throw Error(ErrorCode::kConfig,
              "output '" + Escaped(output) + "' is " + shape.ToString() + " for a batch of " + std::to_string(batch) + why +
                  ", so batches cannot be concatenated",
              Escaped(where, 4096), "use --batch " + std::to_string(all) + " to predict all rows at once");
}

// Whether a transform of images, which is kept as a text, computes with their numbers instead of moving pixels.
bool IsArithmetic(const std::string& row_transform) {
  return row_transform.starts_with("scale ") || row_transform.starts_with("normalize ");
}

}  // namespace

std::map<std::string, std::string> TrainedModel::TransformedTargets() const {
  const auto changes = [](const Transform& transform) {
    if (!transform.row_transform.empty()) return IsArithmetic(transform.row_transform);
    return std::ranges::any_of(transform.shift, [](float shift) { return shift != 0; }) ||
           std::ranges::any_of(transform.scale, [](float scale) { return scale != 1; });
  };
  std::map<std::string, std::string> targets;
  for (const LossInfo& loss : losses_) {
    const auto fitted = recorded_.fitted.find(loss.target);
    if (loss.output.empty() || loss.classes || fitted == recorded_.fitted.end()) continue;
    if (std::ranges::any_of(fitted->second, changes)) targets.emplace(loss.output, loss.target);
  }
  return targets;
}

void TrainedModel::UndoTransforms(const std::map<std::string, std::string>& targets, Predictions& predictions) const {
  for (const auto& [output, target] : targets) {
    const auto found = predictions.outputs.find(output);
    if (found == predictions.outputs.end()) continue;
    Tensor& tensor = found->second;
    const int64_t elements = tensor.elements() / std::max<int64_t>(tensor.shape().rank() > 0 ? tensor.shape()[0] : 1, 1);
    if (tensor.dtype() != DType::kFloat32) tensor = Converted(tensor.view(), DType::kFloat32);
    const std::vector<Transform>& transforms = recorded_.fitted.at(target);
    for (auto of_rows = transforms.rbegin(); of_rows != transforms.rend(); ++of_rows) {
      const std::string& text = of_rows->row_transform;
      if (!text.empty() && !IsArithmetic(text)) continue;
      const Transform transform = text.empty() ? *of_rows : Transform::Parse(text, tensor);
      const int64_t each = std::ssize(transform.shift);
      if (each != 1 && (elements == 0 || elements % each != 0)) {
        throw Error(ErrorCode::kShape,
                    "output '" + Escaped(output) + "' is " + tensor.shape().ToString() + ", but the transform of '" + Escaped(target) +
                        "' has " + std::to_string(each) + " numbers for a row",
                    "--target-units");
      }
      transform.Undo(tensor);
    }
  }
}

Predictions TrainedModel::Predict(const std::string& data, const PredictionForm& form, std::vector<std::string>& notes,
                                  const TrainingJob& job) const {
  const std::map<std::string, std::string> transformed = TransformedTargets();
  if (form.target_units && transformed.empty()) {
    throw Error(ErrorCode::kConfig, "no loss compares an output with a target that has a transform", "--target-units",
                "omit it: the outputs are in the units of the training data");
  }
  Predictions predictions;
  if (!form.keep.empty() && job.leads()) predictions.kept = KeptColumns(data, configuration_.Text("data.format"), form.keep);
  Compiled compiled = CompileFor(EntryKind::kPredict, 0, data);
  const Dataset rows = Load(data, compiled, notes, {.targets = TargetsAmong(compiled.feeds, *compiled.graph.graph)});
  if (compiled.feeds.empty()) {
    throw Error(ErrorCode::kConfig, "no output of the model depends on the data: there is nothing to predict from it", Escaped(data, 4096),
                "gradloom eval computes the loss, gradloom export writes the weights");
  }
  Session session = compiled.Start(EntryKind::kPredict, rows.rows(), &job);
  CheckSame(job, rows, compiled.batch);
  SharedBatches shared(rows.rows(), compiled.batch, SharesBatches(job));
  Batches batches(rows, shared.order(), compiled.batch, {.axes = FeedAxes(session.plan()), .cores = session.host_threads()});
  std::vector<std::string> names;  // of a batch over all processes
  const auto compute = [&](int64_t own) {
    const std::map<std::string, Tensor> fetched = session.Predict(batches.Get(own));
    return OutputsOf(fetched, session.plan().entries[static_cast<size_t>(session.last_entry())], names, predictions);
  };
  std::map<std::string, Shape> shapes;  // of the first batch
  int64_t first_row = 0;
  shared.Run(compute, [&](int64_t i, const std::vector<Tensor>& computed) {
    if (!job.leads()) return;
    Predictions of_batch;
    of_batch.moved = predictions.moved;
    for (size_t k = 0; k < names.size(); ++k) {
      const Shape& shape = computed[k].shape();
      const Shape& first = shapes.emplace(names[k], shape).first->second;
      if (shared.count() > 1) CheckJoins(names[k], shape, shared.size(i), first, rows.rows(), data);
      of_batch.outputs.emplace(names[k], computed[k]);
    }
    // Now, because the scores of all rows may not fit into the memory, and their classes do.
    if (form.target_units) UndoTransforms(transformed, of_batch);
    if (form.classes || form.probabilities) ClassifyOutputs(form, i == 0, of_batch);
    if (i == 0) {
      predictions.classes = std::move(of_batch.classes);
      predictions.columns = std::move(of_batch.columns);
      if (shared.count() == 1) {
        predictions.outputs = std::move(of_batch.outputs);
        return;
      }
      predictions.outputs = RoomFor(of_batch.outputs, rows.rows(), data);
    }
    for (const auto& [name, tensor] : of_batch.outputs) PlaceRows(tensor, first_row, predictions.outputs.at(name));
    first_row += shared.size(i);
  });
  predictions.files = FilesOfRows(rows);
  if (!job.leads()) return predictions;
  CheckKept(predictions);
  for (const auto& [output, target] : transformed) {
    if (form.target_units || !predictions.outputs.contains(output)) continue;
    notes.push_back("units   '" + Escaped(output) + "' is in the units of the transformed target '" + Escaped(target) +
                    "'; --target-units undoes its transform");
  }
  return predictions;
}

}  // namespace gradloom
