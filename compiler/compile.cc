#include "compiler/compile.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/batch_importer.h"
#include "compiler/derived_requests.h"
#include "compiler/divide_graph.h"
#include "compiler/entry_form.h"
#include "compiler/entry_programs.h"
#include "compiler/passes/devices/cut_stages.h"
#include "compiler/passes/devices/micro_batches.h"
#include "compiler/passes/training_view.h"
#include "compiler/passes/update/accumulate.h"
#include "compiler/pipelined_batch.h"
#include "compiler/placement.h"
#include "runtime/base/joined.h"
#include "runtime/base/read_number.h"
#include "runtime/base/stopwatch.h"
#include "runtime/plan/loss_info.h"
#include "runtime/plan/memory_report.h"
#include "runtime/plan/verify_plan.h"

namespace gradloom {
namespace {

// The property of a plan with the origins of the nodes that relate samples, one per line.
constexpr char kTailProperty[] = "tail";
// The property of a plan with the stages that the compiler has chosen: for each node of the model a line with its stage and its name.
constexpr char kStagesProperty[] = "stages";
// The most that the decoder of plans reads of a property (kMaxTextBytes in plan_decode.cc).
constexpr size_t kMaxPropertyBytes = 1 << 20;
// Each compilation adds nodes to the tail.
constexpr int kMaxTails = 16;
// How messages begin that say why a batch cannot be divided.
constexpr std::string_view kUndivided = "the batch cannot be divided over devices: ";

// Compiles the entries of a plan, one after another:
//
//   request -> import -> passes of the batch -> replicas -> passes of each device -> programs and ranks of the entry
//
// BatchImporter does the import, pipeline.cc lists the passes, DivideGraph makes the replicas, EntryPrograms does the rest.
class Compiler {
 public:
  // `limit`: bytes of a device's memory, for which an automatic placement is chosen.
  Compiler(const Model& model, const CompileOptions& options, int64_t limit, CompileReport& report)
      : model_(model),
        options_(options),
        limit_(limit),
        report_(report),
        importer_(model, options, plan_, report),
        programs_(options, importer_.rules(), stages_, plan_, report) {}

  Plan Run() {
    AddEntries();
    plan_.model = options_.exports ? model_.info(ReplacedAtExport(), importer_.tied())
                                   : ModelInfo{.name = model_.name(), .hash = model_.hash(), .bytes = "", .tied = importer_.tied()};
    report_.stages = Gathers(options_.recipe) ? 1 : stages_.count;
    report_.placed = stages_.of_node;
    const Stopwatch time;
    VerifyOrThrow(plan_);
    report_.verify_ms = time.ms();
    return std::move(plan_);
  }

  void AddEntries() {
    plan_.targets.push_back({options_.recipe.device, options_.recipe.isa, options_.recipe.threads});
    plan_.schedule = options_.recipe.schedule;
    ChooseStages();
    const auto text_of = [](const LossTerm& term) { return term.ToString(); };
    if (!options_.recipe.losses.empty()) plan_.properties["loss"] = JoinedTexts(options_.recipe.losses, text_of, " + ");
    plan_.properties.emplace(kFailedSteps, kChangeNothing);
    for (const std::string& origin : options_.recipe.tail) plan_.properties[kTailProperty] += origin + "\n";
    plan_.accumulate = std::max<int64_t>(options_.recipe.accumulate, 1);
    if (plan_.accumulate > 1 && !options_.recipe.losses.empty() && !DividesByWeight(options_.recipe))
      plan_.properties.emplace(kUpdateLoss, kSumOfBatches);
    for (const EntryRequest& request : WithAccumulation(options_, copies())) AddEntry(request);
    if (options_.recipe.place_auto) NoteStages();
  }

  // Returns `plan` with one more entry.
  Plan Extend(const Plan& plan, const EntryRequest& request) {
    if (!IsForwardOnly(request.kind) && plan.accumulate > 1 && plan.HasEntry(EntryKind::kUpdate) &&
        plan.FindState(std::string(kAccumulatedWeightState)) < 0) {
      throw Error(ErrorCode::kPlan,
                  "the plan is of an earlier release, whose updates do not end with an epoch: it cannot have batches of another size", "",
                  "compile the plan again");
    }
    plan_ = plan;
    if (options_.recipe.place_auto) {
      ReadStages();
    } else {
      ChooseStages();
    }
    for (const StateTensor& state : plan.state) {
      if (Gathers(options_.recipe)) stages_.of_state.emplace(state.name, state.in_place(kTrunk) ? kTrunk : kTail);
    }
    AddEntry(request);
    VerifyOrThrow(plan_, FindKernel, &plan);
    return std::move(plan_);
  }

 private:
  int copies() const { return CopiesOf(options_.recipe, stages_); }
  // The micro-batches of a copy that are under way at the same time, in batches of this size.
  int MicroBatches(int64_t batch) const {
    if (stages_.count == 1 || Gathers(options_.recipe)) return 1;
    return MicroBatchesOf(batch, copies(), stages_.count, options_.recipe.pipeline);
  }
  int Parts(int64_t batch) const { return copies() * MicroBatches(batch); }

  void AddEntry(const EntryRequest& request) {
    // An update has no batch, so any batch size serves to import its parameters.
    const int64_t batch = request.batch > 0 ? request.batch : plan_.entries.empty() ? 0 : plan_.entries.front().batch;
    const std::unique_ptr<ImportedBatch> whole = ImportBatch({request.kind, batch, request.shapes}, options_.import);
    PassContext& context = whole->context;
    // A single sample cannot be divided, and an update has none: every replica computes all of it.
    const bool divided = request.kind != EntryKind::kUpdate && context.batch > 1 && Parts(context.batch) > 1;
    if (request.kind == EntryKind::kStep || request.kind == EntryKind::kAccumulate)
      WarnOfSingleValues(context.graph, context.batch, divided && !options_.recipe.sync_bn);
    const std::string& last = options_.control.stop_after;
    if (!last.empty() && StageOfPass(last) == PassStage::kBatch) {
      Place(context);
      context.divided = divided;
      return RunStage(context, options_.control, PassStage::kBatch);
    }
    if (divided) return AddDivided(request, *whole);
    AddUndivided(request, *whole);
  }

  void AddUndivided(const EntryRequest& request, ImportedBatch& whole) {
    const Stopwatch time;
    Place(whole.context);
    RunStage(whole.context, options_.control, PassStage::kBatch);
    WarnOfNoGradient(whole.context);
    Entry entry = EntryOf(request, whole.imported, whole.context, PlacesOf(request, whole));
    const Replicas replicas{.graphs = {{entry.batch, &whole.context.graph}},
                            .shards = std::vector<BatchShard>(static_cast<size_t>(copies()), {0, entry.batch})};
    programs_.Add(whole.context, replicas, entry);
    report_.passes_ms += time.ms();
    plan_.entries.push_back(std::move(entry));
  }

  // The same for batches of all sizes.
  SamplePlaces PlacesOf(const EntryRequest& request, const ImportedBatch& whole) {
    std::optional<SamplePlaces>& places = places_[{request.kind, request.shapes}];
    if (!places) places = PlacesOfSamples(model_, options_, request, whole.context, whole.imported);
    return places.value_or(SamplePlaces());
  }

  // What the device that gathers samples computes does not tell how a target has them.
  std::map<std::string, int64_t> KnownInner(const EntryRequest& request, ImportedBatch& whole) {
    std::map<std::string, int64_t> inner;
    if (!Gathers(options_.recipe)) return inner;
    PassControl silent;
    silent.stop_after = "add_loss";
    RunStage(whole.context, silent, PassStage::kBatch);
    const SamplePlaces places = PlacesOf(request, whole);
    for (const auto& [name, place] : places.feeds) {
      if (place.inner > 0) inner.emplace(name, place.inner);
    }
    return inner;
  }

  // `read`: at the size of the request, before the passes.
  void AddDivided(const EntryRequest& request, ImportedBatch& read) {
    const Stopwatch time;
    const int64_t batch = read.context.batch;
    const std::map<std::string, int64_t> inner = KnownInner(request, read);
    const double imported = report_.import_ms;
    const auto import_at = [&](int64_t size, const ImportOptions& reading) { return ImportAtSize(request, batch, size, reading); };
    const DividedBatch divided = Divide(import_at, batch, inner);
    const PassContext& whole = divided.whole->context;
    WarnOfNoGradient(whole);
    Entry entry = EntryOf(request, divided.whole->imported, whole, {});  // DivideEntry knows the axes
    DivideEntry(*divided.replication, whole.graph, entry);
    const PipelinedBatch pipelined(divided, batch, copies(), MicroBatches(batch), stages_.count, options_.recipe);
    programs_.Add(whole,
                  {.graphs = pipelined.graphs(),
                   .shards = pipelined.shards(),
                   .divided = copies() > 1,
                   .non_contiguous = copies() > 1 ? NonContiguousFeeds(whole.graph, entry) : std::set<ValueId>()},
                  entry);
    report_.passes_ms += time.ms() - (report_.import_ms - imported);
    plan_.entries.push_back(std::move(entry));
  }

  DividedBatch Divide(const ImportAt& import_at, int64_t batch, const std::map<std::string, int64_t>& inner) {
    try {
      return DivideGraph(import_at, options_, batch, Parts(batch), inner);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported || copies() > 1 || !error.message().starts_with(kUndivided)) throw;
      throw Error(error.code(), "the batch cannot be divided into micro-batches: " + error.message().substr(kUndivided.size()),
                  error.where(), "leave out --pipeline");
    }
  }

  // The model of a request for `batch` samples at another size: the first of RequestsAt that fits.
  std::unique_ptr<ImportedBatch> ImportAtSize(const EntryRequest& request, int64_t batch, int64_t size, const ImportOptions& reading) {
    std::optional<Error> first;
    for (const EntryRequest& at : RequestsAt(options_, request, batch, size)) {
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
  }

  std::unique_ptr<ImportedBatch> ImportBatch(const EntryRequest& request, const ImportOptions& reading) {
    const Stopwatch time;
    auto made = importer_.Import(request, reading);
    report_.import_ms += time.ms();
    return made;
  }

  void ChooseStages() {
    stages_ = StagesOf(options_.recipe, [this] { return Cut(); });
    plan_.places.resize(static_cast<size_t>(options_.recipe.ShardsOptimizer() ? copies() : stages_.count));
    if (options_.recipe.place_auto && options_.recipe.pipeline > 1 && stages_.count == 1) {
      report_.warnings.push_back(
          "--pipeline has no effect: each device has the whole model, which --place auto estimates to be the fastest; place parts of the "
          "model by their names for a pipeline");
    }
  }

  // So that further entries have the same stages.
  void NoteStages() {
    std::string text;
    // Names have no line ends (check_names.cc).
    for (const auto& [name, stage] : stages_.of_node) text += std::to_string(stage) + " " + name + "\n";
    if (text.size() <= kMaxPropertyBytes) plan_.properties[kStagesProperty] = std::move(text);
  }

  // The stages of the plan's other entries.
  void ReadStages() {
    stages_.count = static_cast<int>(plan_.places.size());
    const auto noted = plan_.properties.find(kStagesProperty);
    if (noted == plan_.properties.end()) {
      throw Error(ErrorCode::kPlan, "the plan does not say which device computes which node, so it cannot have batches of another size", "",
                  "compile it again with all sizes, or place the nodes by name");
    }
    std::istringstream lines(noted->second);
    for (std::string line; std::getline(lines, line);) {
      const size_t space = line.find(' ');
      const std::optional<int64_t> stage = ReadNumber<int64_t>(std::string_view(line).substr(0, space));
      if (space == std::string::npos || !stage || *stage < 0 || *stage >= stages_.count)
        throw Error(ErrorCode::kPlan, "property '" + std::string(kStagesProperty) + "' has a line '" + Escaped(line, 80) + "'");
      stages_.of_node.emplace(line.substr(space + 1), static_cast<int>(*stage));
    }
    for (const StateTensor& state : plan_.state) {
      if (stages_.count > 1 && !state.places.empty()) stages_.of_state.emplace(state.name, state.places.front());
    }
  }

  // Chooses the cuts for the first entry, which is a training entry if there is any.
  Stages Cut() {
    const std::unique_ptr<ImportedBatch> whole = ImportBatch(options_.entries.front(), options_.import);
    PassControl silent = options_.control;
    silent.log = nullptr;
    silent.stop_after.clear();
    RunStage(whole->context, silent, PassStage::kBatch);
    return CutStages(whole->context.graph, options_.recipe, whole->context.batch, limit_);
  }

  void Place(PassContext& context) {
    if (stages_.count > 1) context.stages = &stages_;
  }

  // Such a step changes no weight.
  void WarnOfNoGradient(const PassContext& context) {
    const bool steps = context.kind == EntryKind::kStep || context.kind == EntryKind::kAccumulate;
    if (!steps || options_.recipe.UsesFileAlgorithm() || report_.trained_elements == 0 || !context.gradients.empty()) return;
    const std::string warning =
        "the loss depends on no trained weight, so training changes nothing: choose another --loss, of an output to which weights lead";
    if (std::find(report_.warnings.begin(), report_.warnings.end(), warning) == report_.warnings.end()) report_.warnings.push_back(warning);
  }

  std::string DividedText(int64_t batch) const {
    const std::string devices = copies() > 1 ? " on " + std::to_string(copies()) + " devices" : "";
    const int count = MicroBatches(batch);
    return devices + (count > 1 ? " in " + std::to_string(count) + " micro-batches" : "");
  }

  // PyTorch refuses such batches. `apart`: each device has statistics of its own samples.
  void WarnOfSingleValues(const Graph& graph, int64_t batch, bool apart) {
    if (options_.recipe.mode != GraphMode::kTrain || options_.recipe.UsesFileAlgorithm()) return;
    int64_t least = batch;
    for (const BatchShard& shard : DivideBatch(batch, apart ? Parts(batch) : 1)) {
      if (shard.length > 0) least = std::min(least, shard.length);
    }
    const std::vector<std::string> found = NormsOfOneValue(graph, batch, least);
    if (found.empty()) return;
    report_.warnings.push_back(
        "in batches of " + std::to_string(batch) + (least < batch ? DividedText(batch) : "") + ", '" + Escaped(found.front()) + "'" +
        (found.size() > 1 ? " and " + std::to_string(found.size() - 1) + " more take" : " takes") +
        " batch statistics of one value per channel, so the result does not depend on the input: choose another --batch" +
        (least < batch ? ", or --sync-bn" : " (the last one of an epoch has the remaining rows)"));
  }

  // The tensors whose values an export replaces, so that the plan need not keep the file's.
  std::vector<std::string> ReplacedAtExport() const {
    std::vector<std::string> names;
    for (const StateTensor& state : plan_.state) {
      if (state.kind == StateKind::kParameter || state.kind == StateKind::kStatistic) names.push_back(state.name);
    }
    return names;
  }

  const Model& model_;
  const CompileOptions& options_;
  const int64_t limit_;
  CompileReport& report_;
  Stages stages_;
  Plan plan_;
  BatchImporter importer_;
  EntryPrograms programs_;
  std::map<std::pair<EntryKind, std::map<std::string, int64_t>>, std::optional<SamplePlaces>> places_;  // PlacesOfSamples
};

Plan CompileBest(const Model& model, const CompileOptions& options, CompileReport* report) {
  const int64_t limit = options.recipe.memory_limit;
  std::optional<std::pair<Plan, CompileReport>> best;
  // If devices hold parts of the model, their memory is only known once it is planned. If it exceeds the limit, a placement for a smaller
  // limit is tried.
  const auto bytes = [](const Plan& plan) { return ReportMemory(plan, 0).fullest().total_bytes(); };
  const auto compile = [&](const CompileOptions& with, double share) {
    CompileReport made;
    Plan plan = Compiler(model, with, static_cast<int64_t>(share * static_cast<double>(limit)), made).Run();
    if (!best || bytes(plan) < bytes(best->first)) best.emplace(std::move(plan), std::move(made));
    return limit == 0 || bytes(best->first) <= limit;
  };
  for (const double share : {1.0, 0.85, 0.7}) {
    if (compile(options, share) || !options.recipe.place_auto) break;
  }
  // What an entry keeps fitted with the constants that there were then, and others have been added for later entries.
  if (limit > 0 && best->second.keeps_settled && bytes(best->first) > limit) {
    CompileOptions without = options;
    without.recipe.keep_settled = false;
    compile(without, 1);
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
    report->tail->from = related->where();
    report->tail->why = related->message().substr(related->message().starts_with(kUndivided) ? kUndivided.size() : 0);
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
