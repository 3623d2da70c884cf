#include "compiler/compile.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "compiler/batch_importer.h"
#include "compiler/cost/cost_model.h"
#include "compiler/divide_graph.h"
#include "compiler/ops/op.h"
#include "compiler/passes/cut_stages.h"
#include "compiler/passes/gather_tail.h"
#include "compiler/passes/place_state.h"
#include "runtime/plan/memory_report.h"
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

// A file's own algorithm is all there is: it has its learning rate, its precision and its updates.
void CheckAlgorithm(const Recipe& recipe) {
  for (const LossTerm& term : recipe.losses) {
    if (term.type == "algorithm" && (recipe.losses.size() > 1 || term.weight != 1))
      throw Error(ErrorCode::kConfig, "the file's own algorithm has a loss; no other goes with it", "--loss algorithm");
  }
  if (!recipe.TrainsByFile()) return;
  const std::pair<bool, const char*> unknown[] = {{recipe.accumulate > 1, "--accumulate"},
                                                  {recipe.precision != Precision::kFloat32, "--precision"},
                                                  {recipe.loss_scale.initial > 0, "--loss-scale"},
                                                  {recipe.fetch_gradients, "gradients by name"}};
  for (const auto& [given, name] : unknown) {
    if (given) {
      throw Error(ErrorCode::kConfig, std::string(name) + " cannot be joined with the file's own algorithm, which updates as it is written",
                  "--loss algorithm", "--loss NAME trains with a loss and an optimizer of Gradloom's");
    }
  }
}

class Compiler {
 public:
  // `limit`: what a placement is chosen for, bytes of a device.
  Compiler(const Model& model, const CompileOptions& options, int64_t limit, CompileReport& report)
      : model_(model), options_(options), limit_(limit), report_(report), importer_(model, options, plan_, report) {}

  // `plan` with one entry more.
  Plan Extend(const Plan& plan, const EntryRequest& request) {
    plan_ = plan;
    CountStages();
    AddEntry(request);
    VerifyOrThrow(plan_);
    return std::move(plan_);
  }

  Plan Run() {
    CheckAlgorithm(options_.recipe);
    plan_.targets.push_back({options_.recipe.device, options_.recipe.isa, options_.recipe.threads});
    plan_.schedule = options_.recipe.schedule;
    CountStages();
    for (const LossTerm& term : options_.recipe.losses) {
      std::string& text = plan_.properties["loss"];
      text += (text.empty() ? "" : " + ") + term.ToString();
    }
    plan_.accumulate = std::max<int64_t>(options_.recipe.accumulate, 1);
    for (const EntryRequest& request : Expanded(options_)) AddEntry(request);
    plan_.model = model_.info(ReplacedAtExport());
    report_.stages = gathers() ? 1 : stages_.count;
    report_.placed = stages_.of_node;
    const auto start = Clock::now();
    VerifyOrThrow(plan_);
    report_.verify_ms = MsSince(start);
    return std::move(plan_);
  }

 private:
  void CountStages() {
    if (gathers()) return GatherStages();
    stages_.count = std::max(gradloom::CountStages(options_.recipe.place), options_.recipe.placed_stages);
    stages_.of_node = options_.recipe.placed;
    if (options_.recipe.place_auto) CutModel();
    plan_.places.resize(static_cast<size_t>(stages_.count));
    if (options_.recipe.devices % stages_.count == 0) return;
    throw Error(ErrorCode::kConfig,
                std::to_string(options_.recipe.devices) + " devices do not hold whole copies of a model that is placed on " +
                    std::to_string(stages_.count),
                "--place", "--devices cpu:" + std::to_string(stages_.count) + ", or a multiple of it");
  }

  // What is placed is in the tail.
  void GatherStages() {
    const Recipe& recipe = options_.recipe;
    const std::string name = "cpu:" + std::to_string(recipe.gather_to);
    if (recipe.gather_to >= recipe.devices) {
      throw Error(ErrorCode::kConfig, "there is no device " + name + " among " + std::to_string(recipe.devices), "--gather-to",
                  "--devices cpu:" + std::to_string(recipe.gather_to + 1));
    }
    const bool elsewhere =
        std::any_of(recipe.place.begin(), recipe.place.end(), [&](const PlaceRule& rule) { return rule.stage != recipe.gather_to; });
    if (recipe.place_auto || elsewhere) {
      throw Error(ErrorCode::kConfig, "where samples are gathered on " + name + ", parts of the model can be placed there alone", "--place",
                  "--place 'PATTERN=" + name + "', or no --gather-to");
    }
    stages_.count = 2;
    plan_.places.resize(2);
  }

  // By the first entry, which trains where any does.
  void CutModel() {
    const EntryRequest& request = options_.entries.front();
    const std::unique_ptr<ImportedBatch> whole = ImportBatch(request, options_.import);
    PassControl silent = options_.control;
    silent.log = nullptr;
    silent.stop_after.clear();
    RunStage(whole->context, silent, PassStage::kBatch);
    stages_ = CutStages(whole->context.graph, options_.recipe, limit_);
  }

  // What an export is given anew: the plan need not keep the file's own values of these.
  std::vector<std::string> ReplacedAtExport() const {
    std::vector<std::string> names;
    for (const StateTensor& state : plan_.state) {
      if (state.kind == StateKind::kParameter || state.kind == StateKind::kStatistic) names.push_back(state.name);
    }
    return names;
  }

  std::unique_ptr<ImportedBatch> ImportBatch(const EntryRequest& request, const ImportOptions& reading) {
    const auto start = Clock::now();
    auto made = importer_.Import(request, reading);
    report_.import_ms += MsSince(start);
    return made;
  }

  // Whether one device gathers the samples of all.
  bool gathers() const { return options_.recipe.gather_to >= 0; }
  int copies() const { return gathers() ? options_.recipe.devices : options_.recipe.devices / stages_.count; }

  void AddEntry(const EntryRequest& request) {
    // An update has no batch; any size gives its parameters.
    const int64_t batch = request.batch > 0 ? request.batch : plan_.entries.empty() ? 0 : plan_.entries.front().batch;
    const std::unique_ptr<ImportedBatch> whole = ImportBatch({request.kind, batch, request.shapes}, options_.import);
    PassContext& context = whole->context;
    // One sample cannot be divided, and an update has none: every copy of the model does all of it.
    if (copies() > 1 && request.kind != EntryKind::kUpdate && context.batch > 1) return AddDivided(request, context.batch);
    const auto start = Clock::now();
    Place(context);
    RunStage(context, options_.control, PassStage::kBatch);
    Entry entry = EntryOf(request, whole->imported, context);
    apart_.clear();
    const std::vector<BatchShard> shards(static_cast<size_t>(copies()), {0, entry.batch});
    BindRanks(request, context, {{entry.batch, &context.graph}}, shards, false, entry);
    report_.passes_ms += MsSince(start);
    plan_.entries.push_back(std::move(entry));
  }

  void AddDivided(const EntryRequest& request, int64_t batch) {
    const auto start = Clock::now();
    const double imported = report_.import_ms;
    const auto import_at = [&](int64_t size, const ImportOptions& reading) {
      auto made = ImportBatch({request.kind, size, request.shapes}, reading);
      Place(made->context);
      return made;
    };
    const DividedBatch divided = DivideGraph(import_at, options_, batch, copies());
    const PassContext& whole = divided.whole->context;
    Entry entry = EntryOf(request, divided.whole->imported, whole);
    for (size_t i = 0; i < entry.feeds.size(); ++i) Divide(divided.replication->shard(FeedsOf(whole.graph)[i]), entry.feeds[i]);
    for (size_t i = 0; i < entry.fetches.size(); ++i) Divide(divided.replication->shard(whole.graph.outputs[i]), entry.fetches[i]);
    apart_.clear();
    for (size_t i = 0; i < entry.feeds.size(); ++i) {
      const Feed& feed = entry.feeds[i];
      const auto samples = SamplesIn(feed.shape, feed.batch_axis, feed.batch_inner, batch);
      if (samples && samples->outer > 1) apart_.insert(FeedsOf(whole.graph)[i]);
    }
    const std::vector<BatchShard> shards = DivideBatch(batch, copies());
    GraphsBySamples graphs;
    for (const auto& [samples, graph] : divided.graphs) graphs.emplace(samples, graph.get());
    BindRanks(request, whole, graphs, shards, true, entry);
    report_.passes_ms += MsSince(start) - (report_.import_ms - imported);
    plan_.entries.push_back(std::move(entry));
  }

  void Place(PassContext& context) {
    if (stages_.count > 1) context.stages = &stages_;
  }

  // What the devices of a copy of the model run, by stage, and the buffers of the whole graph's outputs, -1 for those they lack.
  struct CopyPrograms {
    std::vector<int> programs;
    std::vector<std::vector<int>> fetches;
  };

  // What a copy of the model computes, by how many samples it has.
  using GraphsBySamples = std::map<int64_t, Graph*>;

  // Makes the programs of an entry and gives them to its ranks, copy by copy.
  void BindRanks(const EntryRequest& request, const PassContext& whole, const GraphsBySamples& graphs,
                 const std::vector<BatchShard>& shards, bool divided, Entry& entry) {
    if (gathers()) return BindGathered(request, whole, graphs, shards, divided, entry);
    std::map<int64_t, CopyPrograms> made;  // by samples
    for (const BatchShard& shard : shards) {
      if (!made.contains(shard.length))
        made.emplace(shard.length, AddPrograms(request, whole, *graphs.at(shard.length), shard.length, divided));
      Bind(made.at(shard.length), shard, divided, entry);
    }
  }

  // From the graph of a copy that has so many samples.
  CopyPrograms AddPrograms(const EntryRequest& request, const PassContext& whole, Graph& graph, int64_t samples, bool divided) {
    if (stages_.count == 1) return AddStages(request, whole, {&graph}, 0, samples, divided);
    for (const auto& [state, stage] : stages_.of_state) holders_[state] = {stage};
    std::vector<Graph*> graphs;
    const std::vector<std::unique_ptr<Graph>> stages = SplitStages(graph, stages_);
    for (const auto& stage : stages) graphs.push_back(stage.get());
    return AddStages(request, whole, graphs, 0, samples, true);
  }

  // Each device has its samples of the trunk, and one of them the tail: a place of its own.
  void BindGathered(const EntryRequest& request, const PassContext& whole, const GraphsBySamples& graphs,
                    const std::vector<BatchShard>& shards, bool divided, Entry& entry) {
    const auto tail = static_cast<size_t>(options_.recipe.gather_to);
    for (const auto& [state, stage] : stages_.of_state)
      holders_[state] = stage == kTrunk ? std::vector<int>{kTrunk, kTail} : std::vector<int>{kTail};
    std::map<std::pair<int64_t, bool>, CopyPrograms> made;  // by samples, and whether it has the tail
    for (size_t r = 0; r < shards.size(); ++r) {
      const std::pair key(shards[r].length, r == tail);
      if (!made.contains(key)) {
        const std::unique_ptr<Graph> part = TailPart(*graphs.at(shards[r].length), importer_.rules(), shards, r, tail);
        made.emplace(key, AddStages(request, whole, {part.get()}, r == tail ? kTail : kTrunk, shards[r].length, true));
      }
      const CopyPrograms& mine = made.at(key);
      RankBinding rank{.program = mine.programs[0], .shard_start = shards[r].start, .shard_length = shards[r].length};
      if (divided) rank.groups = {GroupOf(kTrunk)};
      if (r != tail) rank.peers = {static_cast<int>(tail)};
      for (int peer = 0; r == tail && peer < static_cast<int>(shards.size()); ++peer) rank.peers.push_back(peer);
      AddRank(std::move(rank), mine.fetches[0], entry);
    }
  }

  // Of stages in places from `place` on.
  CopyPrograms AddStages(const EntryRequest& request, const PassContext& whole, const std::vector<Graph*>& stages, int place,
                         int64_t samples, bool divided) {
    CopyPrograms made;
    // The graph of a single stage may be the whole one, whose outputs the passes change.
    const std::vector<ValueId> all = whole.graph.outputs;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      Graph& graph = *stages[stage];
      PassContext device{
          .graph = graph, .rules = importer_.rules(), .recipe = options_.recipe, .kind = request.kind, .plan = plan_, .batch = samples};
      device.divided = divided;
      device.place = place + static_cast<int>(stage);
      device.holders = &holders_;
      // A device with a memory of its own reads no feed where it is.
      device.copies = {.all = options_.recipe.copy_inputs || options_.recipe.device != DeviceKind::kCpu, .feeds = apart_};
      device.fetch_names = whole.fetch_names;
      // Later passes put others in their place.
      const std::vector<ValueId> outputs = graph.outputs;
      RunDeviceStage(device);
      Count(device);
      std::vector<int>& buffers = made.fetches.emplace_back();
      for (ValueId id : all) {
        const auto at = std::find(outputs.begin(), outputs.end(), id);
        buffers.push_back(at == outputs.end() ? -1 : device.output_buffers[static_cast<size_t>(at - outputs.begin())]);
      }
      made.programs.push_back(static_cast<int>(plan_.programs.size()));
      plan_.programs.push_back(std::move(device.program));
    }
    return made;
  }

  // The devices of the next copy of the model, which has this part of the batch.
  void Bind(const CopyPrograms& made, const BatchShard& shard, bool divided, Entry& entry) {
    const auto first = static_cast<int>(entry.ranks.size());
    for (int stage = 0; stage < stages_.count; ++stage) {
      RankBinding rank{.program = made.programs[static_cast<size_t>(stage)], .shard_start = shard.start, .shard_length = shard.length};
      if (divided) rank.groups = {GroupOf(stage)};
      for (int peer = 0; stages_.count > 1 && peer < stages_.count; ++peer) rank.peers.push_back(first + peer);
      AddRank(std::move(rank), made.fetches[static_cast<size_t>(stage)], entry);
    }
  }

  // `fetches`: of the rank's program.
  static void AddRank(RankBinding rank, const std::vector<int>& fetches, Entry& entry) {
    if (entry.ranks.empty()) {
      for (size_t i = 0; i < entry.fetches.size(); ++i) entry.fetches[i].buffer = fetches[i];
    } else if (rank.program != entry.ranks[0].program) {
      rank.fetches = fetches;
    }
    entry.ranks.push_back(std::move(rank));
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
    const gradloom::Place& place = plan_.places[static_cast<size_t>(context.place)];
    std::pair<int64_t, int64_t> best{context.scheduled.transient_bytes, 0};  // arena, and how much is made anew
    for (int round = 0; round < kMostRounds; ++round) {
      const int64_t over =
          place.state_bytes + place.constants_bytes + context.scheduled.transient_bytes + 2 * context.scheduled.input_bytes - limit;
      if (over <= 0 || (round > 0 && context.recomputed.bytes < context.recompute_bytes)) break;
      run(context.recompute_bytes + over + over / 4);
      best = std::min(best, {context.scheduled.transient_bytes, context.recompute_bytes});
    }
    if (best.second != context.recompute_bytes) run(best.second);
    if (context.recomputed.bytes > report_.recomputed.bytes) report_.recomputed = context.recomputed;
  }

  // The group of the devices that have a stage, one a copy of the model.
  int GroupOf(int stage) {
    if (plan_.groups.empty()) {
      const int stages = options_.recipe.devices / copies();
      plan_.groups.resize(static_cast<size_t>(stages));
      for (int i = 0; i < options_.recipe.devices; ++i) plan_.groups[static_cast<size_t>(i % stages)].ranks.push_back(i);
    }
    return stage;
  }

  template <typename FeedOrFetch>
  static void Divide(const Shard& shard, FeedOrFetch& tensor) {
    tensor.batch_axis = shard.split() ? shard.axis : -1;
    tensor.batch_inner = shard.split() ? shard.inner : 0;
  }

  // A program's share in the report.
  void Count(const PassContext& context) {
    if (plan_.programs.empty()) {
      for (const Node& node : context.graph.nodes) report_.step_flops += CostOf(context.graph, node).flops;
    }
    if (plan_.entries.empty()) {
      report_.waits += static_cast<int64_t>(context.scheduled.waits.size());
      report_.waits_bound += context.scheduled.waits_bound;
    }
    if (context.scheduled.transient_bytes >= report_.transient_bytes) {
      report_.transient_bytes = context.scheduled.transient_bytes;
      report_.live_bytes_bound = context.scheduled.live_bytes_bound;
    }
  }

  // The entry without its ranks.
  static Entry EntryOf(const EntryRequest& request, const ImportedGraph& imported, const PassContext& context) {
    Entry entry{.kind = request.kind, .batch = request.kind == EntryKind::kUpdate ? 0 : imported.batch};
    entry.feeds = FeedList(context, imported);
    for (size_t i = 0; i < context.graph.outputs.size(); ++i) {
      const ValueId id = context.graph.outputs[i];
      const auto named = context.fetch_names.find(id);
      const Value& value = context.graph.value(id);
      entry.fetches.push_back({named != context.fetch_names.end() ? named->second : value.name, -1, BatchAxis(value, entry.batch)});
    }
    const std::vector<ValueId>& outputs = context.graph.outputs;
    for (const auto& [output, extents] : imported.extents) {
      const auto place = [&](ValueId id) { return static_cast<size_t>(std::find(outputs.begin(), outputs.end(), id) - outputs.begin()); };
      if (place(output) == outputs.size()) continue;
      Fetch& fetch = entry.fetches[place(output)];
      // As many as there happen to be are no samples.
      fetch.batch_axis = -1;
      for (const auto& [axis, count] : extents) fetch.extents.push_back({axis, static_cast<int>(place(count))});
    }
    return entry;
  }

  const Model& model_;
  const CompileOptions& options_;
  const int64_t limit_;
  CompileReport& report_;
  Stages stages_;
  StateHolders holders_;
  std::set<ValueId> apart_;  // feeds of the entry of which a device's samples do not lie together
  Plan plan_;
  BatchImporter importer_;
};

}  // namespace

namespace {

std::vector<Feed> Feeds(const Model& model, const CompileOptions& options, const EntryRequest& request) {
  CheckAlgorithm(options.recipe);
  const OnnxTypeRules rules;
  Plan plan;
  ImportedBatch read = ReadBatch(model, options.recipe, request, options.import, rules, plan);
  PassControl control;
  control.stop_after = "add_loss";
  RunPipeline(read.context, control);
  return FeedList(read.context, read.imported);
}

Plan CompileBest(const Model& model, const CompileOptions& options, CompileReport* report) {
  const int64_t limit = options.recipe.memory_limit;
  std::optional<std::pair<Plan, CompileReport>> best;
  // Where devices hold parts of the model, what they need is known when memory is planned: with a smaller estimate once more.
  for (const double share : {1.0, 0.85, 0.7}) {
    CompileReport made;
    Plan plan = Compiler(model, options, static_cast<int64_t>(share * static_cast<double>(limit)), made).Run();
    const auto bytes = [](const Plan& p) { return ReportMemory(p, 0).fullest().total_bytes(); };
    if (!best || bytes(plan) < bytes(best->first)) best.emplace(std::move(plan), std::move(made));
    if (!options.recipe.place_auto || limit == 0 || bytes(best->first) <= limit) break;
  }
  if (report != nullptr) *report = std::move(best->second);
  return std::move(best->first);
}

}  // namespace

// Passes know nodes and no files.
std::vector<Feed> FeedsOfEntry(const Model& model, const CompileOptions& options, const EntryRequest& request) {
  try {
    return Feeds(model, options, request);
  } catch (const Error& error) {
    throw InFileOf(model, error);
  }
}

Plan Compile(const Model& model, const CompileOptions& options, CompileReport* report) {
  try {
    return CompileBest(model, options, report);
  } catch (const Error& error) {
    throw InFileOf(model, error);
  }
}

std::optional<EntryRequest> RequestFor(const Model& model, const CompileOptions& options, EntryKind kind,
                                       const std::map<std::string, Shape, std::less<>>& feeds) {
  EntryRequest request{.kind = kind, .batch = 0};
  ImportOptions reading = options.import;
  reading.training_info = kind == EntryKind::kPredict ? -1 : options.recipe.training_info();
  reading.inputs = {feeds.begin(), feeds.end()};
  try {
    for (const OpenExtent& extent : OpenExtents(model, reading)) {
      if (extent.is_batch) {
        request.batch = extent.value;
      } else {
        request.shapes[extent.symbol] = extent.value;
      }
    }
  } catch (const Error& error) {
    // Not as the file declares them.
    if (error.code() != ErrorCode::kShape) throw;
    return std::nullopt;
  }
  std::vector<Feed> wanted;
  try {
    wanted = FeedsOfEntry(model, options, request);
  } catch (const Error& error) {
    // The older exporter of PyTorch writes lengths into shapes, whatever it is told of axes.
    std::string changed;
    for (const auto& [symbol, extent] : request.shapes) {
      const auto first = options.import.shapes.find(symbol);
      if (first == options.import.shapes.end() || first->second == extent) continue;
      changed +=
          (changed.empty() ? "" : ", ") + Escaped(symbol) + "=" + std::to_string(extent) + " (first " + std::to_string(first->second) + ")";
    }
    if (error.code() != ErrorCode::kShape || changed.empty() || !error.help().empty()) throw;
    throw Error(error.code(), error.message(), error.where(),
                "the file leaves these extents open, and does not fit this one: " + changed +
                    "; export it with torch.onnx.export(dynamo=True, dynamic_shapes=...), or give all batches the first extent");
  }
  for (const Feed& feed : wanted) {
    const auto given = feeds.find(feed.name);
    if (given == feeds.end() || given->second != feed.shape) return std::nullopt;
  }
  return request;
}

Plan AddEntry(const Model& model, const CompileOptions& options, const Plan& plan, const EntryRequest& request) {
  try {
    CompileReport report;
    return Compiler(model, options, options.recipe.memory_limit, report).Extend(plan, request);
  } catch (const Error& error) {
    throw InFileOf(model, error);
  }
}

}  // namespace gradloom
