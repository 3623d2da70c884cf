#include "tools/run/train/run_screen.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/cost/launch_work.h"
#include "compiler/passes/devices/micro_batches.h"
#include "runtime/base/counted.h"
#include "runtime/base/listing.h"
#include "runtime/base/version.h"
#include "runtime/plan/memory_report.h"
#include "runtime/plan/plan_file.h"
#include "tools/run/compile_model.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

ProgressMode ModeOf(const std::string& name) {
  return name == "bar"     ? ProgressMode::kBar
         : name == "plain" ? ProgressMode::kPlain
         : name == "json"  ? ProgressMode::kJson
         : name == "none"  ? ProgressMode::kNone
                           : ProgressMode::kAuto;
}

constexpr int64_t kSkippedLines = 10;
constexpr size_t kMaxKept = 1000;  // limit on the number of epochs kept

int64_t BatchesPerEpoch(const TrainingSetUp& set_up) {
  const int64_t batch = set_up.options.batch;
  return (set_up.data.train.rows() + batch - 1) / batch;
}

// Passes over the data, also if the run is limited by updates.
int64_t EpochsOf(const TrainingSetUp& set_up) {
  const int64_t per_epoch = BatchesPerEpoch(set_up);
  if (set_up.options.updates == 0) return set_up.options.epochs;
  const int64_t batches = UpdateRuleOf(*set_up.plan, per_epoch).BatchesOf(set_up.options.updates);
  return batches / per_epoch + (batches % per_epoch > 0 ? 1 : 0);
}

}  // namespace

namespace {

// Whether devices that hold the same parameters hold the optimizer's states of different ones.
bool SharesOutOptimizer(const Plan& plan) {
  return std::any_of(plan.state.begin(), plan.state.end(), [&](const StateTensor& state) {
    return state.kind == StateKind::kOptimizer && state.places != plan.state[static_cast<size_t>(state.parameter)].places;
  });
}

// The programs that a device runs for an update, each with how often: accumulated batches have another one than the update.
using ProgramsOfUpdate = std::vector<std::pair<const Program*, int64_t>>;

ProgramsOfUpdate ProgramsOf(const Plan& plan, size_t rank) {
  const auto program = [&](const Entry& entry) { return &plan.programs[static_cast<size_t>(entry.ranks[rank].program)]; };
  const Entry& first = plan.entries.front();
  if (first.kind != EntryKind::kAccumulate || plan.accumulate < 2) return {{program(first), 1}};
  if (const int last = plan.FindEntry(EntryKind::kLastBatch, first.batch); last >= 0)
    return {{program(first), plan.accumulate - 1}, {program(plan.entries[static_cast<size_t>(last)]), 1}};
  const auto update = std::ranges::find(plan.entries, EntryKind::kUpdate, &Entry::kind);
  if (update == plan.entries.end()) return {{program(first), plan.accumulate}};
  return {{program(first), plan.accumulate}, {program(*update), 1}};
}

int64_t InstructionsOf(const ProgramsOfUpdate& programs) {
  int64_t count = 0;
  for (const auto& [program, times] : programs) count += times * std::ssize(program->instructions);
  return count;
}

// "4 all-reduces (1.2 MiB)  ": those of the device with most of them.
std::string CollectivesText(const std::vector<ProgramsOfUpdate>& devices, Collective collective, const char* one, const char* several) {
  int64_t most = 0, most_bytes = 0;
  for (const ProgramsOfUpdate& programs : devices) {
    int64_t count = 0, bytes = 0;
    for (const auto& [program, times] : programs) {
      for (const Instruction& instruction : program->instructions) {
        if (instruction.kind != InstructionKind::kCollective || instruction.collective != collective) continue;
        count += times;
        bytes += times * BytesRead(*program, instruction);
      }
    }
    most = std::max(most, count);
    most_bytes = std::max(most_bytes, bytes);
  }
  return most == 0 ? "" : Counted(most, one, several) + " (" + Bytes(most_bytes) + ")  ";
}

// What the devices run for an update: the one with most instructions, and the collectives among them.
std::string DevicesLine(const Plan& plan, const CompileReport& report, int64_t most_micro_batches) {
  const Entry& first = plan.entries.front();
  const size_t devices = first.ranks.size();
  std::vector<ProgramsOfUpdate> all;
  std::set<int> places;
  for (size_t rank = 0; rank < devices; ++rank) {
    all.push_back(ProgramsOf(plan, rank));
    places.insert(plan.PlaceOf(rank));
  }
  const auto [fewest, fullest] =
      std::ranges::minmax_element(all, {}, [](const ProgramsOfUpdate& programs) { return InstructionsOf(programs); });
  const Program& program = *fullest->front().first;
  size_t compute = 0;
  for (const Stream& stream : program.streams) compute += stream.kind == StreamKind::kCompute ? 1 : 0;
  const Target& target = plan.targets.front();
  const bool on_cpu = target.device == DeviceKind::kCpu;
  std::string line = (devices == 1 ? "" : std::to_string(devices) + " x ") + std::string(DeviceKindName(target.device));
  line += on_cpu ? (devices == 1 ? "  " : " (virtual)  ") : " " + Escaped(target.isa) + "  ";
  if (on_cpu) line += Counted(program.streams.front().threads, "thread") + (devices == 1 ? "" : " each") + "  ";
  if (SharesOutOptimizer(plan)) {
    line += "optimizer state shared out  ";
  } else if (places.size() > 1) {
    line += std::to_string(places.size()) + " kinds of model parts  ";
    const int copies = std::max(1, static_cast<int>(devices) / report.stages);
    const int micro_batches =
        report.stages > 1 ? MicroBatchesOf(first.batch, copies, report.stages, static_cast<int>(most_micro_batches)) : 1;
    if (micro_batches > 1) line += std::to_string(micro_batches) + " micro-batches in a pipeline  ";
  }
  if (program.streams.size() > 1) line += Counted(compute, "stream") + "  " + Counted(program.num_events, "event") + "  ";
  line += CollectivesText(all, Collective::kAllReduceSum, "all-reduce", "all-reduces");
  line += CollectivesText(all, Collective::kReduceSum, "reduce", "reduces");
  line += CollectivesText(all, Collective::kBroadcast, "broadcast", "broadcasts");
  const bool equal = InstructionsOf(*fewest) == InstructionsOf(*fullest);
  return line + (equal ? "" : "at most ") + std::to_string(InstructionsOf(*fullest)) + " instructions per step";
}

// A warning if there are devices that compute nothing in training, such as those to which no placement refers.
std::string IdleWarning(const Plan& plan) {
  const size_t devices = plan.entries.front().ranks.size();
  Listing idle(4);
  for (size_t rank = 0; rank < devices; ++rank) {
    const auto computes = [](const std::pair<const Program*, int64_t>& run) {
      return std::ranges::any_of(run.first->instructions, [](const Instruction& instruction) {
        return instruction.kind == InstructionKind::kLaunch || instruction.kind == InstructionKind::kIf ||
               instruction.kind == InstructionKind::kLoop;
      });
    };
    if (std::ranges::none_of(ProgramsOf(plan, rank), computes)) idle.Add(std::to_string(rank + 1));
  }
  if (idle.count() == 0) return "";
  return "warning device " + idle.text() + " of " + std::to_string(devices) +
         " has nothing to compute: use fewer --devices, or --place some nodes there";
}

// "64", or with accumulation "64 = 4 x 16".
std::string BatchText(int64_t batch, int64_t accumulate) {
  const std::string text = std::to_string(batch);
  return accumulate == 1 ? text : std::to_string(batch * accumulate) + " = " + std::to_string(accumulate) + " x " + text;
}

}  // namespace

void PrintHeader(Log& log, const Configuration& configuration, const TrainingSetUp& set_up, const std::string& run) {
  const Plan& plan = *set_up.plan;
  const CompileReport& report = set_up.report;
  int64_t trained = 0, statistics = 0;
  for (const StateTensor& state : plan.state) {
    if (state.kind == StateKind::kParameter) trained += state.shape.elements();
    if (state.kind == StateKind::kStatistic) statistics += state.shape.elements();
  }
  log.Line(std::string("gradloom ") + kVersion + (run.empty() ? "" : "  run " + Escaped(run, 4096)) + "  seed " +
           std::to_string(configuration.Integer("train.seed")) + "  plan " + PlanHash(plan).substr(0, 8));
  log.Line("model   " + Escaped(set_up.model_path, 4096) + "  " + WithCommas(trained) + " parameters trained, " +
           WithCommas(report.initializer_elements - report.trained_elements - statistics) + " frozen, " + WithCommas(statistics) +
           " running statistics");
  for (const std::string& warning : report.warnings) log.Line("warning " + warning);
  for (const std::string& note : set_up.notes) log.Line(note);
  const std::vector<int64_t> sizes = BatchSizes(set_up.data.train.rows(), set_up.options.batch);
  const size_t files = set_up.data.files.size();
  log.Line("data    " + Escaped(configuration.Text("data.train"), 4096) + (files > 0 ? "  " + std::to_string(files) + " files" : "") +
           "  " + WithCommas(set_up.data.train.rows()) + " train  " + WithCommas(set_up.data.eval.rows()) + " eval  batch " +
           BatchText(set_up.options.batch, plan.accumulate) +
           (sizes.size() > 1 ? "   (last batch of an epoch " + std::to_string(sizes[1]) + ")" : ""));
  WriteStderrLine("debug", "compile " + CompileTimes(report));
  log.Line("devices " + DevicesLine(plan, report, configuration.Integer("devices.pipeline")));
  if (const std::string line = IdleWarning(plan); !line.empty()) log.Line(line);
  log.Line("memory  " + Bytes(report.transient_bytes) + " activations + " + Bytes(MostStateBytes(plan)) +
           " weights and optimizer  (exact)   verified in " + Short(report.verify_ms) + " ms");
}

RunScreen::RunScreen(Log& log, const Configuration& configuration, const TrainingSetUp& set_up)
    : log_(log),
      progress_(ModeOf(configuration.Text("log.progress")), configuration.Integer("log.every"), log),
      total_epochs_(EpochsOf(set_up)),
      rule_(UpdateRuleOf(*set_up.plan, BatchesPerEpoch(set_up))),
      terms_(set_up.plan->loss_terms),
      watched_(set_up.options.watch.name),
      has_rate_(set_up.has_rate) {
  if (set_up.data.eval.rows() == 0 || set_up.options.evaluate.unit == Interval::Unit::kNever) return;
  columns_ = terms_;
  columns_.insert(columns_.begin(), "loss");
  for (const MetricSpec& spec : set_up.options.metrics) columns_.push_back(spec.shown());
}

void RunScreen::OnStep(const StepReport& step) {
  const StepResult& result = step.result;
  if (step.skipped && ++skipped_ <= kSkippedLines) {
    progress_.Clear();
    log_.Line("warning batch " + std::to_string(result.batch) + " is skipped: its loss is " + Short(result.loss) +
              (skipped_ == kSkippedLines ? "; more are not listed" : ""));
  }
  // Lines are counted in updates, as steps are elsewhere.
  if (rule_.Pending(result.batch) != 0) return;
  progress_.Update({.step = rule_.UpdatesOf(result.batch),
                    .total_steps = rule_.UpdatesOf(step.total_batches),
                    .epoch = step.epochs_done,
                    .epochs = total_epochs_,
                    .loss = result.loss,
                    .term_names = terms_,
                    .terms = result.terms,
                    .lr = has_rate_ ? result.lr : -1,
                    .grad_norm = result.grad_norm,
                    .samples_per_s = step.samples_per_s,
                    .metrics = metrics_});
}

void RunScreen::OnEvaluation(const EvaluationReport& evaluation) {
  if (evaluation.best) best_step_ = evaluation.step;
  if (evaluation.undefined && !warned_undefined_) {
    warned_undefined_ = true;
    progress_.Clear();
    log_.Line("warning eval/" + Escaped(watched_) + " is undefined on the evaluation data at step " + std::to_string(evaluation.step) +
              (watched_.starts_with("auroc") ? ", which would need samples of a class and of others" : "") +
              ": such evaluations do not count for the best model, for --early-stop and for --plateau-patience");
  }
  if (evaluation.lr > 0) {
    progress_.Clear();
    log_.Line("lr      " + Short(evaluation.lr) + " from step " + std::to_string(evaluation.step) + ": no progress");
  }
  progress_.Evaluated(evaluation.step, evaluation.epochs_done, evaluation.values, evaluation.best);
  metrics_.clear();
  for (const std::string& name : columns_) {
    if (name != "loss" && !name.starts_with("loss/"))
      metrics_ += (metrics_.empty() ? "" : "  ") + name + " " + Short(evaluation.values.at(name));
  }
}

void RunScreen::OnEpoch(const EpochReport& epoch) {
  ++count_;
  seconds_ += epoch.seconds;
  last_ = epoch;
  // Metrics by class, which the table does not show, may be tens of thousands.
  EpochReport shown = epoch;
  std::erase_if(shown.eval, [&](const auto& of) { return std::find(columns_.begin(), columns_.end(), of.first) == columns_.end(); });
  if (epoch.step == best_step_ && !shown.eval.empty()) best_ = Kept{count_, shown};
  if (count_ % stride_ != 0) return;
  kept_.push_back({count_, std::move(shown)});
  if (kept_.size() < kMaxKept) return;
  stride_ *= 2;
  std::erase_if(kept_, [&](const Kept& kept) { return kept.number % stride_ != 0; });
}

void RunScreen::PrintTable() {
  if (count_ == 0) return;
  std::vector<std::string> header{"epoch", "train loss"};
  for (const std::string& name : terms_) header.push_back("train " + name);
  for (const std::string& name : columns_) header.push_back("eval " + name);
  header.insert(header.end(), {"samples/s", "time", ""});
  std::vector<std::vector<std::string>> table{header};
  // All epochs of a short run; of a long one every tenth part, the last and the best.
  std::map<int64_t, const EpochReport*> rows{{count_, &last_}};
  const int64_t stride = (count_ + 9) / 10;
  int64_t next = stride;
  for (const auto& [number, epoch] : kept_) {
    if (number < next) continue;
    rows.emplace(number, &epoch);
    next = (number / stride + 1) * stride;
  }
  // A later evaluation may have been the best.
  const int64_t best = best_ && best_->epoch.step == best_step_ ? best_->number : 0;
  if (best > 0) rows.emplace(best, &best_->epoch);
  for (const auto& [number, epoch] : rows) {
    std::vector<std::string> line{std::to_string(epoch->epoch), Short(epoch->train_loss)};
    for (const std::string& name : terms_) line.push_back(epoch->terms.empty() ? "-" : Short(epoch->terms.at(name)));
    for (const std::string& name : columns_) line.push_back(epoch->eval.empty() ? "-" : Short(epoch->eval.at(name)));
    line.push_back(WithCommas(static_cast<int64_t>(epoch->samples_per_s)));
    line.push_back(Duration(epoch->seconds));
    line.emplace_back(number == best ? "best" : "");
    table.push_back(std::move(line));
  }
  std::string text = Table(table);
  text.pop_back();
  log_.Line(text);
}

}  // namespace gradloom
