#include "compiler/compile.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/batch_importer.h"
#include "compiler/device_passes.h"
#include "compiler/divide_graph.h"
#include "compiler/entry_form.h"
#include "compiler/passes/accumulate.h"
#include "compiler/passes/cut_stages.h"
#include "compiler/passes/gather_tail.h"
#include "compiler/passes/place_state.h"
#include "compiler/passes/training_view.h"
#include "runtime/base/joined.h"
#include "runtime/plan/memory_report.h"
#include "runtime/plan/verify_plan.h"

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

// The property of a plan with the origins of the nodes that relate samples, one per line.
constexpr char kTailProperty[] = "tail";
// Each compilation adds nodes to the tail.
constexpr int kMaxTails = 16;

double MsSince(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

class Compiler {
 public:
  // `limit`: bytes of a device's memory, for which an automatic placement is chosen.
  Compiler(const Model& model, const CompileOptions& options, int64_t limit, CompileReport& report)
      : model_(model), options_(options), limit_(limit), report_(report), importer_(model, options, plan_, report) {}

  // Returns `plan` with one more entry.
  Plan Extend(const Plan& plan, const EntryRequest& request) {
    const bool trains = request.kind != EntryKind::kEval && request.kind != EntryKind::kPredict;
    if (trains && plan.accumulate > 1 && plan.HasEntry(EntryKind::kUpdate) && plan.FindState(std::string(kAccumulatedWeightState)) < 0) {
      throw Error(ErrorCode::kPlan,
                  "the plan is of an earlier release, whose updates do not end with an epoch: it cannot have batches of another size", "",
                  "compile the plan again");
    }
    plan_ = plan;
    CountStages();
    for (const StateTensor& state : plan.state) {
      if (gathers()) stages_.of_state.emplace(state.name, state.in_place(kTrunk) ? kTrunk : kTail);
    }
    AddEntry(request);
    VerifyOrThrow(plan_, FindKernel, &plan);
    return std::move(plan_);
  }

  Plan Run() {
    AddEntries();
    plan_.model = model_.info(ReplacedAtExport());
    report_.stages = gathers() ? 1 : stages_.count;
    report_.placed = stages_.of_node;
    const auto start = Clock::now();
    VerifyOrThrow(plan_);
    report_.verify_ms = MsSince(start);
    return std::move(plan_);
  }

  void AddEntries() {
    plan_.targets.push_back({options_.recipe.device, options_.recipe.isa, options_.recipe.threads});
    plan_.schedule = options_.recipe.schedule;
    CountStages();
    if (const auto& losses = options_.recipe.losses; !losses.empty())
      plan_.properties["loss"] = JoinedTexts(
          losses, [](const LossTerm& term) { return term.ToString(); }, " + ");
    plan_.properties.emplace(kFailedSteps, kChangeNothing);
    for (const std::string& origin : options_.recipe.tail) plan_.properties[kTailProperty] += origin + "\n";
    plan_.accumulate = std::max<int64_t>(options_.recipe.accumulate, 1);
    for (const EntryRequest& request : Expanded()) AddEntry(request);
  }

 private:
  // Whether the passes stop before there is a program, as they were asked to.
  bool stops() const { return !options_.control.stop_after.empty(); }

  void CountStages() {
    if (gathers()) return GatherStages();
    stages_.count = std::max(gradloom::CountStages(options_.recipe.place), options_.recipe.placed_stages);
    stages_.of_node = options_.recipe.placed;
    if (options_.recipe.place_auto) CutModel();
    plan_.places.resize(static_cast<size_t>(stages_.count));
    if (options_.recipe.devices % stages_.count == 0) return;
    throw Error(
        ErrorCode::kConfig,
        std::to_string(options_.recipe.devices) + " devices are not a multiple of the model's " + std::to_string(stages_.count) + " stages",
        "--place", "--devices cpu:" + std::to_string(stages_.count) + ", or a multiple of it");
  }

  // If the recipe accumulates, each training step becomes an accumulation, and one update is added. If devices hold partial sums, there is
  // also an entry for the last batch, which all-reduces them during its backward pass.
  std::vector<EntryRequest> Expanded() const {
    if (options_.recipe.accumulate <= 1) return options_.entries;
    std::vector<EntryRequest> entries;
    bool trains = false;
    for (EntryRequest request : options_.entries) {
      const bool step = request.kind == EntryKind::kStep;
      trains |= step;
      if (step) request.kind = EntryKind::kAccumulate;
      entries.push_back(request);
      if (!step || !KeepsParts(options_.recipe, copies())) continue;
      request.kind = EntryKind::kLastBatch;
      entries.push_back(request);
    }
    if (trains) entries.push_back({EntryKind::kUpdate, 0});
    return entries;
  }

  // With --gather-to, the placed nodes are the tail, or those that relate samples.
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
      throw Error(ErrorCode::kConfig, "with --gather-to " + name + ", parts of the model can only be placed on that device", "--place",
                  "use --place 'PATTERN=" + name + "', or leave out --gather-to");
    }
    stages_.count = 2;
    plan_.places.resize(2);
  }

  // Chooses the cuts for the first entry, which is a training entry if there is any.
  void CutModel() {
    const EntryRequest& request = options_.entries.front();
    const std::unique_ptr<ImportedBatch> whole = ImportBatch(request, options_.import);
    PassControl silent = options_.control;
    silent.log = nullptr;
    silent.stop_after.clear();
    RunStage(whole->context, silent, PassStage::kBatch);
    stages_ = CutStages(whole->context.graph, options_.recipe, limit_);
  }

  // The tensors whose values an export replaces, so that the plan need not keep the file's.
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

  // Whether one device gathers the samples of all devices.
  bool gathers() const { return options_.recipe.gather_to >= 0; }
  int copies() const { return gathers() ? options_.recipe.devices : options_.recipe.devices / stages_.count; }

  void AddEntry(const EntryRequest& request) {
    // An update has no batch, so any batch size serves to import its parameters.
    const int64_t batch = request.batch > 0 ? request.batch : plan_.entries.empty() ? 0 : plan_.entries.front().batch;
    const std::unique_ptr<ImportedBatch> whole = ImportBatch({request.kind, batch, request.shapes}, options_.import);
    PassContext& context = whole->context;
    // A single sample cannot be divided, and an update has none: every replica computes all of it.
    const bool divided = copies() > 1 && request.kind != EntryKind::kUpdate && context.batch > 1;
    if (request.kind == EntryKind::kStep || request.kind == EntryKind::kAccumulate)
      WarnOfSingleValues(context.graph, context.batch, divided && !options_.recipe.sync_bn);
    if (stops() && StageOfPass(options_.control.stop_after) == PassStage::kBatch) {
      Place(context);
      context.divided = divided;
      return RunStage(context, options_.control, PassStage::kBatch);
    }
    if (divided) return AddDivided(request, context.batch);
    const auto start = Clock::now();
    Place(context);
    RunStage(context, options_.control, PassStage::kBatch);
    Entry entry = EntryOf(request, whole->imported, context, ShapesAtAnotherBatch(model_, options_, request, whole->imported));
    non_contiguous_.clear();
    const std::vector<BatchShard> shards(static_cast<size_t>(copies()), {0, entry.batch});
    BindRanks(request, context, {{entry.batch, &context.graph}}, shards, false, entry);
    // The replicas of a stage all-reduce their partial sums of gradients.
    const bool sums = request.kind == EntryKind::kUpdate || request.kind == EntryKind::kLastBatch;
    for (size_t r = 0; sums && plan_.HasPartialState() && r < entry.ranks.size(); ++r)
      entry.ranks[r].groups = {GroupOf(static_cast<int>(r) % stages_.count)};
    report_.passes_ms += MsSince(start);
    plan_.entries.push_back(std::move(entry));
  }

  // PyTorch refuses such batches. `apart`: each device has statistics of its own samples.
  void WarnOfSingleValues(const Graph& graph, int64_t batch, bool apart) {
    if (options_.recipe.mode != GraphMode::kTrain || options_.recipe.UsesFileAlgorithm()) return;
    int64_t least = batch;
    for (const BatchShard& shard : DivideBatch(batch, apart ? copies() : 1)) {
      if (shard.length > 0) least = std::min(least, shard.length);
    }
    const std::vector<std::string> found = NormsOfOneValue(graph, batch, least);
    if (found.empty()) return;
    report_.warnings.push_back(
        "in batches of " + std::to_string(batch) + (least < batch ? " on " + std::to_string(copies()) + " devices" : "") + ", '" +
        Escaped(found.front()) + "'" + (found.size() > 1 ? " and " + std::to_string(found.size() - 1) + " more take" : " takes") +
        " batch statistics of one value per channel, so the result does not depend on the input: choose another --batch" +
        (least < batch ? ", or --sync-bn" : " (the last one of an epoch has the remaining rows)"));
  }

  // The entry for `size` samples instead of `batch`, to compare the two. If the extents given by name do not fit that batch size, some of
  // them may be numbers of rows for each sample, or the batch under another name: the further requests have them in proportion, the fewest
  // of them first.
  std::vector<EntryRequest> RequestsAt(const EntryRequest& request, int64_t batch, int64_t size) const {
    constexpr size_t kMaxExtents = 3;  // each set of them is a reading of the file
    std::vector<EntryRequest> requests = {{request.kind, size, request.shapes}};
    std::map<std::string, int64_t> extents = options_.import.shapes;
    for (const auto& [symbol, extent] : request.shapes) extents[symbol] = extent;
    std::erase_if(extents, [&](const auto& of) { return of.second < batch || of.second % batch != 0; });
    if (size == batch || extents.size() > kMaxExtents) return requests;
    const std::vector<std::pair<std::string, int64_t>> multiples(extents.begin(), extents.end());
    for (size_t wanted = 1; wanted <= multiples.size(); ++wanted) {
      for (unsigned set = 1; set < 1U << multiples.size(); ++set) {
        if (static_cast<size_t>(std::popcount(set)) != wanted) continue;
        EntryRequest scaled = requests.front();
        for (size_t i = 0; i < multiples.size(); ++i) {
          if ((set >> i & 1U) != 0) scaled.shapes[multiples[i].first] = multiples[i].second / batch * size;
        }
        requests.push_back(std::move(scaled));
      }
    }
    return requests;
  }

  void AddDivided(const EntryRequest& request, int64_t batch) {
    const auto start = Clock::now();
    const double imported = report_.import_ms;
    const auto import_at = [&](int64_t size, const ImportOptions& reading) {
      std::optional<Error> first;
      for (const EntryRequest& at : RequestsAt(request, batch, size)) {
        try {
          auto made = ImportBatch(at, reading);
          Place(made->context);
          // The graph at another size is only compared with the one of this batch.
          made->context.samples = batch;
          return made;
        } catch (const Error& error) {
          if (!first && error.code() != ErrorCode::kShape) throw;
          if (!first) first = error;
        }
      }
      throw *first;
    };
    const DividedBatch divided = DivideGraph(import_at, options_, batch, copies());
    const PassContext& whole = divided.whole->context;
    Entry entry = EntryOf(request, divided.whole->imported, whole, {});  // DivideEntry knows the axes
    DivideEntry(*divided.replication, whole.graph, entry);
    non_contiguous_ = NonContiguousFeeds(whole.graph, entry);
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

  // The programs of a replica, by stage, and the buffers of the whole graph's outputs in each; -1 for outputs of other stages.
  struct CopyPrograms {
    std::vector<int> programs;
    std::vector<std::vector<int>> fetches;
  };

  // The graph of a replica, by its number of samples.
  using GraphsBySamples = std::map<int64_t, Graph*>;

  // Makes the programs of an entry, and binds its ranks to them, replica by replica.
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

  // Makes programs of the graph of a replica that has this number of samples.
  CopyPrograms AddPrograms(const EntryRequest& request, const PassContext& whole, Graph& graph, int64_t samples, bool divided) {
    if (stages_.count == 1) return AddStages(request, whole, {&graph}, 0, samples, divided);
    for (const auto& [state, stage] : stages_.of_state) holders_[state] = {stage};
    std::vector<Graph*> graphs;
    const std::vector<std::unique_ptr<Graph>> stages = SplitStages(graph, stages_);
    for (const auto& stage : stages) graphs.push_back(stage.get());
    return AddStages(request, whole, graphs, 0, samples, true);
  }

  // Each device runs the trunk for its samples. One of them also runs the tail, and has a place of its own.
  void BindGathered(const EntryRequest& request, const PassContext& whole, const GraphsBySamples& graphs,
                    const std::vector<BatchShard>& shards, bool divided, Entry& entry) {
    const auto tail = static_cast<size_t>(options_.recipe.gather_to);
    if (plan_.entries.empty() && !options_.recipe.tail.empty()) ReportTail(whole.graph);
    for (const auto& [state, stage] : stages_.of_state)
      holders_[state] = stage == kTrunk ? std::vector<int>{kTrunk, kTail} : std::vector<int>{kTail};
    std::map<std::pair<int64_t, bool>, CopyPrograms> made;  // by number of samples, and whether it has the tail
    for (size_t r = 0; r < shards.size(); ++r) {
      const std::pair key(shards[r].length, r == tail);
      if (!made.contains(key)) {
        const std::unique_ptr<Graph> part = TailPart(*graphs.at(shards[r].length), importer_.rules(), shards, r, tail);
        made.emplace(key, AddStages(request, whole, {part.get()}, r == tail ? kTail : kTrunk, shards[r].length, true));
      }
      const CopyPrograms& mine = made.at(key);
      if (stops()) continue;
      RankBinding rank{.program = mine.programs[0], .shard_start = shards[r].start, .shard_length = shards[r].length};
      if (divided) rank.groups = {GroupOf(kTrunk)};
      if (r != tail) rank.peers = {static_cast<int>(tail)};
      for (int peer = 0; r == tail && peer < static_cast<int>(shards.size()); ++peer) rank.peers.push_back(peer);
      AddRank(std::move(rank), mine.fetches[0], entry);
    }
  }

  void ReportTail(const Graph& graph) {
    CompileReport::Tail& tail = report_.tail.emplace();
    double all_flops = 0, tail_flops = 0;
    for (const Node& node : graph.nodes) {
      if (IsBoundary(node)) continue;
      const bool inside = node.device == kTail, forward = node.phase == Phase::kForward;
      const double flops = CostOf(graph, node).flops;
      tail.nodes += inside && forward ? 1 : 0;
      tail.all_nodes += forward ? 1 : 0;
      tail_flops += inside ? flops : 0;
      all_flops += flops;
    }
    tail.flops_share = all_flops > 0 ? tail_flops / all_flops : 1;
  }

  // The stages are in consecutive places that start at `place`.
  CopyPrograms AddStages(const EntryRequest& request, const PassContext& whole, const std::vector<Graph*>& stages, int place,
                         int64_t samples, bool divided) {
    CopyPrograms made;
    // The graph of a single stage may be the whole graph, whose outputs the passes change.
    const std::vector<ValueId> all = whole.graph.outputs;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      Graph& graph = *stages[stage];
      PassContext device{
          .graph = graph, .rules = importer_.rules(), .recipe = options_.recipe, .kind = request.kind, .plan = plan_, .batch = samples};
      device.divided = divided;
      device.place = place + static_cast<int>(stage);
      device.holders = &holders_;
      // A device with its own memory cannot read feeds in place.
      device.copies = {.all = options_.recipe.copy_inputs || options_.recipe.device != DeviceKind::kCpu, .feeds = non_contiguous_};
      device.fetch_names = whole.fetch_names;
      // Passes replace the outputs.
      const std::vector<ValueId> outputs = graph.outputs;
      RunDevicePasses(device, options_.control);
      if (stops()) continue;
      if (device.recomputed.bytes > report_.recomputed.bytes) report_.recomputed = device.recomputed;
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

  // Adds the ranks of the next replica, which has this shard of the batch.
  void Bind(const CopyPrograms& made, const BatchShard& shard, bool divided, Entry& entry) {
    if (stops()) return;
    const auto first = static_cast<int>(entry.ranks.size());
    for (int stage = 0; stage < stages_.count; ++stage) {
      RankBinding rank{.program = made.programs[static_cast<size_t>(stage)], .shard_start = shard.start, .shard_length = shard.length};
      if (divided) rank.groups = {GroupOf(stage)};
      for (int peer = 0; stages_.count > 1 && peer < stages_.count; ++peer) rank.peers.push_back(first + peer);
      AddRank(std::move(rank), made.fetches[static_cast<size_t>(stage)], entry);
    }
  }

  // `fetches`: buffers in the rank's program.
  static void AddRank(RankBinding rank, const std::vector<int>& fetches, Entry& entry) {
    if (entry.ranks.empty()) {
      for (size_t i = 0; i < entry.fetches.size(); ++i) entry.fetches[i].buffer = fetches[i];
    } else if (rank.program != entry.ranks[0].program) {
      rank.fetches = fetches;
    }
    entry.ranks.push_back(std::move(rank));
  }

  // The group of the devices that hold a stage, one per replica.
  int GroupOf(int stage) {
    if (plan_.groups.empty()) {
      const int stages = options_.recipe.devices / copies();
      plan_.groups.resize(static_cast<size_t>(stages));
      for (int i = 0; i < options_.recipe.devices; ++i) plan_.groups[static_cast<size_t>(i % stages)].ranks.push_back(i);
    }
    return stage;
  }

  // Adds a program to the report.
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

  const Model& model_;
  const CompileOptions& options_;
  const int64_t limit_;
  CompileReport& report_;
  Stages stages_;
  StateHolders holders_;
  std::set<ValueId> non_contiguous_;  // feeds of the entry in which a device's samples are not contiguous
  Plan plan_;
  BatchImporter importer_;
};

Plan CompileBest(const Model& model, const CompileOptions& options, CompileReport* report) {
  const int64_t limit = options.recipe.memory_limit;
  std::optional<std::pair<Plan, CompileReport>> best;
  // If devices hold parts of the model, their memory is only known once it is planned. If it exceeds the limit, a placement for a smaller
  // limit is tried.
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

// Calls `make` with the options. As long as nodes relate samples, these are added to the tail and `make` is called again. If that does not
// help, the first refusal is thrown.
Plan MadeWithTail(CompileOptions options, const std::function<Plan(const CompileOptions&)>& make, std::optional<RelatedSamples>& first) {
  for (int tails = 0;; ++tails) {
    try {
      return make(options);
    } catch (const RelatedSamples& error) {
      if (!first) first = error;
      const size_t known = options.recipe.tail.size();
      if (options.recipe.MayGatherRelated()) options.recipe.tail.insert(error.origins().begin(), error.origins().end());
      options.recipe.tail.erase("");
      if (options.recipe.tail.size() == known || tails == kMaxTails) throw RelatedSamples(*first);
      options.recipe.gather_to = 0;
    } catch (const Error& error) {
      if (first && error.code() == ErrorCode::kUnsupported) throw RelatedSamples(*first);
      throw;
    }
  }
}

}  // namespace

// Passes know nodes but not files, so errors get the file here.
Plan Compile(const Model& model, const CompileOptions& options, CompileReport* report) {
  if (const std::string& pass = options.control.stop_after; !pass.empty()) {
    throw Error(ErrorCode::kConfig, "there is no plan if no pass runs after '" + Escaped(pass) + "'", "--stop-after",
                "omit it; with gradloom compile it shows the graph that a pass leaves (--dump-after)");
  }
  try {
    std::optional<RelatedSamples> related;
    Plan plan = MadeWithTail(
        options, [&](const CompileOptions& made) { return CompileBest(model, made, report); }, related);
    if (report == nullptr || !report->tail || !related) return plan;
    constexpr std::string_view kRefused = "the batch cannot be divided over devices: ";
    report->tail->from = related->where();
    report->tail->why = related->message().substr(related->message().starts_with(kRefused) ? kRefused.size() : 0);
    return plan;
  } catch (const Error& error) {
    throw WithFileName(model, error);
  }
}

void RunPasses(const Model& model, const CompileOptions& options) {
  try {
    const auto run = [&](const CompileOptions& made) {
      CompileReport report;
      Compiler(model, made, made.recipe.memory_limit, report).AddEntries();
      return Plan();
    };
    std::optional<RelatedSamples> related;
    MadeWithTail(options, run, related);
  } catch (const Error& error) {
    throw WithFileName(model, error);
  }
}

Plan AddEntry(const Model& model, const CompileOptions& options, const Plan& plan, const EntryRequest& request) {
  try {
    CompileReport report;
    const auto extend = [&](const CompileOptions& made) {
      return Compiler(model, made, made.recipe.memory_limit, report).Extend(plan, request);
    };
    const auto origins = plan.properties.find(kTailProperty);
    if (origins == plan.properties.end()) return extend(options);
    CompileOptions gathering = options;
    gathering.recipe.gather_to = 0;
    std::istringstream lines(origins->second);
    for (std::string origin; std::getline(lines, origin);) gathering.recipe.tail.insert(origin);
    std::optional<RelatedSamples> related;
    return MadeWithTail(std::move(gathering), extend, related);
  } catch (const Error& error) {
    throw WithFileName(model, error);
  }
}

}  // namespace gradloom
