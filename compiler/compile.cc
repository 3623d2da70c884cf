#include "compiler/compile.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "compiler/cost/cost_model.h"
#include "compiler/onnx/type_rules.h"
#include "compiler/ops/op.h"
#include "compiler/passes/choose_trainable.h"
#include "compiler/passes/emit_program.h"
#include "compiler/passes/replicate_data.h"
#include "runtime/plan/verify_plan.h"

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

double MsSince(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

// A recipe that accumulates turns each training step into an accumulation, and needs one update.
std::vector<EntryRequest> Expanded(const CompileOptions& options) {
  if (options.recipe.accumulate <= 1) return options.entries;
  std::vector<EntryRequest> entries;
  bool trains = false;
  for (EntryRequest request : options.entries) {
    trains |= request.kind == EntryKind::kStep;
    if (request.kind == EntryKind::kStep) request.kind = EntryKind::kAccumulate;
    entries.push_back(request);
  }
  if (trains) entries.push_back({EntryKind::kUpdate, 0});
  return entries;
}

TrainableOptions TrainableOf(const Recipe& recipe) { return {recipe.trainable, recipe.freeze, recipe.only}; }

// Targets and outputs have the batch in front if they have it at all.
int BatchAxis(const Value& value, int64_t batch) { return batch > 0 && value.shape.rank() > 0 && value.shape[0] == batch ? 0 : -1; }

std::vector<Feed> FeedList(const PassContext& context, const ImportedGraph& imported) {
  const Graph& graph = context.graph;
  std::vector<Feed> feeds;
  for (ValueId id : FeedsOf(graph)) {
    const Value& value = graph.value(id);
    // The model's own inputs come first, in the order of the import.
    const auto at = static_cast<size_t>(std::find(graph.inputs.begin(), graph.inputs.end(), id) - graph.inputs.begin());
    const int axis = at < imported.batch_axes.size() ? imported.batch_axes[at] : BatchAxis(value, imported.batch);
    const auto named = context.feed_names.find(id);
    feeds.push_back({named != context.feed_names.end() ? named->second : value.name, value.dtype, value.shape, axis});
  }
  return feeds;
}

class Compiler {
 public:
  Compiler(const Model& model, const CompileOptions& options, CompileReport& report) : model_(model), options_(options), report_(report) {}

  Plan Run() {
    plan_.targets.push_back({options_.recipe.device, "any", options_.recipe.threads});
    plan_.schedule = options_.recipe.schedule;
    for (const LossTerm& term : options_.recipe.losses) {
      std::string& text = plan_.properties["loss"];
      text += (text.empty() ? "" : " + ") + term.ToString();
    }
    plan_.accumulate = std::max<int64_t>(options_.recipe.accumulate, 1);
    for (const EntryRequest& request : Expanded(options_)) AddEntry(request);
    plan_.model = model_.info(ReplacedAtExport());
    const auto start = Clock::now();
    VerifyOrThrow(plan_);
    report_.verify_ms = MsSince(start);
    return std::move(plan_);
  }

 private:
  // What an export is given anew: the plan need not keep the file's own values of these.
  std::vector<std::string> ReplacedAtExport() const {
    std::vector<std::string> names;
    for (const StateTensor& state : plan_.state) {
      if (state.kind == StateKind::kParameter || state.kind == StateKind::kStatistic) names.push_back(state.name);
    }
    return names;
  }

  // A model at a batch, with what the passes know of it.
  struct Batch {
    ImportedGraph imported;
    PassContext context;
  };

  std::unique_ptr<Batch> ImportBatch(const EntryRequest& request, int64_t batch, ImportOptions import) {
    const auto start = Clock::now();
    if (batch > 0) import.batch = batch;
    ImportedGraph imported = Import(model_, import);
    Graph& graph = *imported.graph;
    PassContext context{
        .graph = graph, .rules = rules_, .recipe = options_.recipe, .kind = request.kind, .plan = plan_, .batch = imported.batch};
    context.fetch_names = imported.output_names;
    context.parameters = SelectTrained(imported);
    ReadKeptState(graph);
    if (request.kind == EntryKind::kUpdate) {
      // The update reads accumulated gradients; nothing of the model itself runs.
      graph.nodes.clear();
      graph.inputs.clear();
      graph.outputs.clear();
    }
    report_.import_ms += MsSince(start);
    return std::make_unique<Batch>(Batch{std::move(imported), std::move(context)});
  }

  void AddEntry(const EntryRequest& request) {
    // An update has no batch; any size gives its parameters.
    const int64_t batch = request.batch > 0 ? request.batch : plan_.entries.empty() ? 0 : plan_.entries.front().batch;
    const std::unique_ptr<Batch> whole = ImportBatch(request, batch, options_.import);
    PassContext& context = whole->context;
    // One sample cannot be divided, and an update has none: every device does all of it.
    if (options_.recipe.devices > 1 && request.kind != EntryKind::kUpdate && context.batch > 1) return AddDivided(request, context.batch);
    const auto start = Clock::now();
    RunStage(context, options_.control, PassStage::kBatch);
    RunDeviceStage(context);
    report_.passes_ms += MsSince(start);
    Count(context);
    Entry entry = EntryOf(request, whole->imported, context);
    for (int i = 0; i < options_.recipe.devices; ++i) {
      entry.ranks.push_back({.program = static_cast<int>(plan_.programs.size()), .shard_start = 0, .shard_length = entry.batch});
    }
    plan_.programs.push_back(std::move(context.program));
    plan_.entries.push_back(std::move(entry));
  }

  // A batch that devices share, and the graphs of those with as many of its samples.
  struct Divided {
    std::unique_ptr<Batch> whole, other;
    std::unique_ptr<Replication> replication;
    std::map<int64_t, std::unique_ptr<Graph>> graphs;  // by samples
  };

  static int64_t BucketOf(const Recipe& recipe) {
    return recipe.bucket_bytes > 0 ? recipe.bucket_bytes : BucketBytes(DefaultCosts(recipe.device));
  }

  // Where a file's batch is, as far as it does not say so itself; the convention first.
  static std::vector<ImportOptions> Readings(const ImportOptions& options) {
    std::vector<ImportOptions> readings(3, options);
    for (ImportOptions& reading : readings) reading.any_batch = true;
    readings[1].batch_elsewhere = true;
    readings[2].batch_elsewhere = true;
    readings[2].batch_axis = 1;
    return readings;
  }

  // What depends on the batch shows beside another size; one that simplifies in the same way is near.
  Divided DivideGraph(const EntryRequest& request, int64_t batch) {
    std::optional<Error> first;
    for (const ImportOptions& reading : Readings(options_.import)) {
      for (int64_t other : {batch + 1, 2 * batch, batch - 1}) {
        if (other < 2) continue;
        try {
          return DivideGraph(request, batch, other, reading);
        } catch (const Error& error) {
          if (error.code() != ErrorCode::kUnsupported && error.code() != ErrorCode::kShape) throw;
          if (!first) first = error;
        }
      }
    }
    if (first->message().starts_with("the batch cannot")) throw *first;
    throw Error(ErrorCode::kUnsupported, "the batch cannot be divided over devices: " + first->message(), first->where(),
                "train on one device (--devices cpu)");
  }

  Divided DivideGraph(const EntryRequest& request, int64_t batch, int64_t other_batch, const ImportOptions& reading) {
    Divided made{ImportBatch(request, batch, reading), ImportBatch(request, other_batch, reading), nullptr, {}};
    PassContext &whole = made.whole->context, &other = made.other->context;
    whole.divided = other.divided = true;
    RunStage(whole, options_.control, PassStage::kBatch);
    PassControl silent = options_.control;
    silent.log = nullptr;
    RunStage(other, silent, PassStage::kBatch);
    made.replication =
        std::make_unique<Replication>(whole.graph, batch, other.graph, other_batch, rules_, whole.gradients, BucketOf(options_.recipe));
    for (const BatchShard& shard : DivideBatch(batch, options_.recipe.devices)) {
      auto& graph = made.graphs[shard.length];
      if (graph == nullptr) graph = made.replication->ForDevice(shard.length);
    }
    return made;
  }

  void AddDivided(const EntryRequest& request, int64_t batch) {
    const auto start = Clock::now();
    const double imported = report_.import_ms;
    const Divided divided = DivideGraph(request, batch);
    const PassContext& whole = divided.whole->context;
    Entry entry = EntryOf(request, divided.whole->imported, whole);
    for (size_t i = 0; i < entry.feeds.size(); ++i) Divide(divided.replication->shard(FeedsOf(whole.graph)[i]), entry.feeds[i]);
    for (size_t i = 0; i < entry.fetches.size(); ++i) Divide(divided.replication->shard(whole.graph.outputs[i]), entry.fetches[i]);
    std::map<int64_t, std::pair<int, std::vector<int>>> made;  // by samples: the program, and its buffer of each fetch
    for (const BatchShard& shard : DivideBatch(batch, options_.recipe.devices)) {
      if (!made.contains(shard.length))
        made.emplace(shard.length, AddProgram(request, whole, *divided.graphs.at(shard.length), shard.length));
      const auto& [program, fetches] = made.at(shard.length);
      RankBinding rank{.program = program, .shard_start = shard.start, .shard_length = shard.length};
      rank.groups = {Everyone()};
      if (!entry.ranks.empty() && program != entry.ranks[0].program) rank.fetches = fetches;
      entry.ranks.push_back(std::move(rank));
    }
    for (size_t i = 0; i < entry.fetches.size(); ++i) entry.fetches[i].buffer = made.at(entry.ranks[0].shard_length).second[i];
    report_.passes_ms += MsSince(start) - (report_.import_ms - imported);
    plan_.entries.push_back(std::move(entry));
  }

  // The program of devices with so many samples, and in it the buffers of the whole graph's outputs, -1 for those it lacks.
  std::pair<int, std::vector<int>> AddProgram(const EntryRequest& request, const PassContext& whole, Graph& graph, int64_t samples) {
    PassContext device{.graph = graph, .rules = rules_, .recipe = options_.recipe, .kind = request.kind, .plan = plan_, .batch = samples};
    device.divided = true;
    device.fetch_names = whole.fetch_names;
    // Later passes put others in their place.
    const std::vector<ValueId> outputs = graph.outputs;
    RunDeviceStage(device);
    Count(device);
    std::vector<int> buffers;
    for (ValueId id : whole.graph.outputs) {
      const auto at = std::find(outputs.begin(), outputs.end(), id);
      buffers.push_back(at == outputs.end() ? -1 : device.output_buffers[static_cast<size_t>(at - outputs.begin())]);
    }
    plan_.programs.push_back(std::move(device.program));
    return {static_cast<int>(plan_.programs.size()) - 1, std::move(buffers)};
  }

  // The passes of a device; again with more activations made anew, until the program fits the memory limit or nothing more can go. The
  // smallest program is kept. Whether it fits is judged by who set the limit.
  void RunDeviceStage(PassContext& context) {
    constexpr int kMostRounds = 4;
    const int64_t limit = options_.recipe.memory_limit;
    const std::unique_ptr<Graph> original = limit > 0 ? context.graph.Clone() : nullptr;
    const auto names = context.fetch_names;
    RunStage(context, options_.control, PassStage::kDevice);
    if (limit == 0) return;
    const auto run = [&](int64_t bytes) {
      context.recompute_bytes = bytes;
      context.recomputed = {};
      context.graph = *original->Clone();
      context.fetch_names = names;
      context.scheduled = {};
      RunStage(context, options_.control, PassStage::kDevice);
    };
    std::pair<int64_t, int64_t> best{context.scheduled.transient_bytes, 0};  // arena, and how much is made anew
    for (int round = 0; round < kMostRounds; ++round) {
      const int64_t over = plan_.state_bytes + plan_.constants_bytes + context.scheduled.transient_bytes - limit;
      if (over <= 0 || (round > 0 && context.recomputed.bytes < context.recompute_bytes)) break;
      run(context.recompute_bytes + over + over / 4);
      best = std::min(best, {context.scheduled.transient_bytes, context.recompute_bytes});
    }
    if (best.second != context.recompute_bytes) run(best.second);
    if (context.recomputed.bytes > report_.recomputed.bytes) report_.recomputed = context.recomputed;
  }

  // The group of all ranks.
  int Everyone() {
    if (plan_.groups.empty()) {
      plan_.groups.emplace_back();
      for (int i = 0; i < options_.recipe.devices; ++i) plan_.groups[0].ranks.push_back(i);
    }
    return 0;
  }

  template <typename FeedOrFetch>
  static void Divide(const Shard& shard, FeedOrFetch& tensor) {
    tensor.batch_axis = shard.split() ? shard.axis : -1;
    tensor.batch_inner = shard.split() ? shard.inner : 0;
  }

  // Running statistics that a training entry keeps are state to the other entries too, not the file's constants.
  void ReadKeptState(Graph& graph) const {
    for (const StateTensor& state : plan_.state) {
      const ValueId id = state.kind == StateKind::kStatistic ? graph.Find(state.name) : kNoValue;
      if (id != kNoValue && graph.value(id).role == Role::kConst) graph.value(id).role = Role::kState;
    }
  }

  std::vector<ValueId> SelectTrained(ImportedGraph& imported) {
    const TrainableChoice choice = ChooseTrainable(*imported.graph, TrainableOf(options_.recipe));
    if (report_.trained.empty() && report_.frozen.empty()) {
      for (const auto& [name, reason] : choice.trained) report_.trained.push_back({name, reason});
      for (const auto& [name, reason] : choice.frozen) report_.frozen.push_back({name, reason});
      for (const std::string& warning : imported.warnings) report_.warnings.push_back(warning);
      for (const Value& value : imported.graph->values()) {
        if (imported.graph->data(value.id) == nullptr || !IsFloating(value.dtype)) continue;
        report_.initializer_elements += value.shape.elements();
        if (value.role == Role::kParam) report_.trained_elements += value.shape.elements();
      }
    }
    CheckCopies(imported, choice);
    return choice.parameters;
  }

  // Copies of one weight would be trained apart at the file's own batch, and only one of them at any other.
  void CheckCopies(const ImportedGraph& imported, const TrainableChoice& choice) const {
    for (const auto& [name, reason] : choice.trained) {
      if (!imported.batch_copies.contains(name)) continue;
      const std::string declared = std::to_string(imported.declared_batch);
      throw Error(
          ErrorCode::kShape,
          "'" + Escaped(name) + "' holds a copy of one weight for each of the " + declared +
              " samples that the file was made for, so it cannot be trained at a batch of " + std::to_string(imported.batch),
          Escaped(model_.path(), 4096),
          "export the model with a dynamic batch (torch.onnx.export: dynamic_shapes or dynamic_axes), or leave it as it is: --freeze '" +
              Escaped(name) + "'");
    }
  }

  // A program's share in the report.
  void Count(const PassContext& context) {
    if (plan_.programs.empty()) {
      for (const Node& node : context.graph.nodes) report_.step_flops += CostOf(context.graph, node).flops;
    }
    if (context.scheduled.transient_bytes >= report_.transient_bytes) {
      report_.transient_bytes = context.scheduled.transient_bytes;
      report_.live_bytes_bound = context.scheduled.live_bytes_bound;
    }
  }

  // The entry without its ranks; buffers are those of context.output_buffers where there are any.
  static Entry EntryOf(const EntryRequest& request, const ImportedGraph& imported, const PassContext& context) {
    Entry entry{.kind = request.kind, .batch = request.kind == EntryKind::kUpdate ? 0 : imported.batch};
    entry.feeds = FeedList(context, imported);
    for (size_t i = 0; i < context.graph.outputs.size(); ++i) {
      const ValueId id = context.graph.outputs[i];
      const auto named = context.fetch_names.find(id);
      const Value& value = context.graph.value(id);
      const int buffer = i < context.output_buffers.size() ? context.output_buffers[i] : -1;
      entry.fetches.push_back({named != context.fetch_names.end() ? named->second : value.name, buffer, BatchAxis(value, entry.batch)});
    }
    return entry;
  }

  const Model& model_;
  const CompileOptions& options_;
  CompileReport& report_;
  OnnxTypeRules rules_;
  Plan plan_;
};

}  // namespace

std::vector<Feed> FeedsOfEntry(const Model& model, const CompileOptions& options, const EntryRequest& request) {
  ImportOptions import = options.import;
  if (request.batch > 0) import.batch = request.batch;
  ImportedGraph imported = Import(model, import);
  const OnnxTypeRules rules;
  Plan plan;
  PassContext context{
      .graph = *imported.graph, .rules = rules, .recipe = options.recipe, .kind = request.kind, .plan = plan, .batch = imported.batch};
  context.fetch_names = imported.output_names;
  PassControl control;
  control.stop_after = "add_loss";
  RunPipeline(context, control);
  return FeedList(context, imported);
}

Plan Compile(const Model& model, const CompileOptions& options, CompileReport* report) {
  CompileReport ignored;
  return Compiler(model, options, report != nullptr ? *report : ignored).Run();
}

}  // namespace gradloom
