#include "tools/run/train/run_ending.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/plan/memory_report.h"
#include "runtime/plan/plan_file.h"
#include "tools/run/records/environment.h"
#include "tools/run/stop_signals.h"
#include "tools/screen/screen.h"
#include "tools/screen/shell_word.h"

namespace gradloom {
namespace {

double StalenessPerUpdate(const SharedCounts& counts) {
  return static_cast<double>(counts.staleness) / std::max(static_cast<double>(counts.updates), 1.0);
}

std::string SharedLine(int processes, const SharedCounts& counts) {
  return std::to_string(processes) + " processes, " + WithCommas(counts.updates) + " updates; during one update, the others made " +
         Short(StalenessPerUpdate(counts)) + " (mean); of " + WithCommas(counts.marks) + " marks written without locks, " +
         WithCommas(counts.marks_lost) + " were lost";
}

// A stop that was requested from outside.
void PrintStopped(Log& log, const RunEnding& ending, const Session& session) {
  log.Line(std::string("stopped by ") + StopSignals::NameOf(ending.signal) + " after step " + std::to_string(session.step()) + "   saved " +
           Escaped(ending.checkpoint, 4096));
  log.Line("resume  gradloom resume " + ShellWord(ending.run));
}

}  // namespace

void PrintEnding(Log& log, const RunEnding& ending, const TrainingSetUp& set_up, const Session& session) {
  if (ending.stopped == StopReason::kRequested) return PrintStopped(log, ending, session);
  const std::string watched = "eval/" + set_up.options.watch.name;
  std::string line = "done in " + Duration(ending.seconds) + " (compile " + Duration(set_up.compile_seconds) + ", train " +
                     Duration(ending.train_seconds) + ", save " + Duration(ending.save_seconds) + ", waited " +
                     Short(100 * ending.waited_seconds / std::max(ending.train_seconds, 1e-9)) + "% for data)";
  if (ending.best) line += "   best " + watched + " " + Short(ending.best->first) + " @ step " + std::to_string(ending.best->second);
  log.Line(line);
  if (ending.batches_left_out > 0) log.Line("skipped " + WithCommas(ending.batches_left_out) + " batches whose loss was not finite");
  if (const auto scale = session.loss_scale(); scale && scale->skipped > 0) {
    log.Line("skipped " + WithCommas(scale->skipped) + " updates whose gradients were not finite; the loss scale is " +
             Short(scale->scale));
  }
  if (ending.stopped == StopReason::kNoImprovement) {
    log.Line("stopped early: " + watched + " has not improved for " + std::to_string(set_up.options.patience) + " evaluations");
    log.Line("resume  gradloom resume " + ShellWord(ending.run) + " --early-stop 0   goes on without stopping early");
  }
  if (ending.shared) log.Line("hogwild " + SharedLine(ending.processes, *ending.shared));
  const std::vector<DeviceMemory> devices = session.device_memory();
  const DeviceMemory memory = *std::ranges::max_element(devices, {}, [](const DeviceMemory& of) { return of.allocated + of.cached; });
  log.Line("memory  " + Bytes(memory.allocated) + " allocated, " + Bytes(memory.cached) + " cached, " + Bytes(memory.free) + " free" +
           (devices.size() == 1 ? "" : " on " + Escaped(memory.device) + ", which uses most"));
  log.Line("model   " + Escaped(ending.model, 4096) + "   run: " + Escaped(ending.run, 4096));
  if (ending.best && ending.best->second != session.step())
    log.Line("best    gradloom export " + ShellWord(ending.run) + " --from best -o best.onnx   writes the model of step " +
             std::to_string(ending.best->second));
}

nlohmann::json ReportOfDryRun(const TrainingSetUp& set_up) {
  const Plan& plan = *set_up.plan;
  return {{"dry_run", true},
          {"plan", PlanHash(plan)},
          {"compile_s", set_up.compile_seconds},
          {"train_rows", set_up.data.train.rows()},
          {"eval_rows", set_up.data.eval.rows()},
          {"batch", set_up.options.batch},
          {"accumulate", plan.accumulate},
          {"transient_bytes", set_up.report.transient_bytes},
          {"state_bytes", MostStateBytes(plan)}};
}

nlohmann::json ReportOf(const RunEnding& ending, const TrainingSetUp& set_up, const Session& session) {
  const int64_t per_epoch = (set_up.data.train.rows() + set_up.options.batch - 1) / set_up.options.batch;
  const ProcessMemory memory = ThisProcess();
  nlohmann::json line{{"run", ending.run},
                      {"epochs", (session.batch() + per_epoch - 1) / per_epoch},
                      {"steps", session.step()},
                      {"compile_s", set_up.compile_seconds},
                      {"train_s", ending.train_seconds},
                      {"waited_s", ending.waited_seconds},
                      {"planned_bytes", session.planned_bytes()},
                      {"memory", ToJson(session.device_memory())["devices"]},
                      {"resident_bytes", memory.resident_bytes},
                      {"peak_bytes", memory.peak_bytes},
                      {"stopped_early", ending.stopped == StopReason::kNoImprovement},
                      {"checkpoint", ending.checkpoint}};
  if (ending.stopped == StopReason::kRequested) {
    line["stopped_by"] = StopSignals::NameOf(ending.signal);
  } else {
    line["model"] = ending.model;
  }
  if (ending.batches_left_out > 0) line["batches_left_out"] = ending.batches_left_out;
  if (ending.shared) {
    line["hogwild"] = {{"processes", ending.processes},
                       {"updates", ending.shared->updates},
                       {"updates_meanwhile", StalenessPerUpdate(*ending.shared)},
                       {"marks", ending.shared->marks},
                       {"marks_lost", ending.shared->marks_lost}};
  }
  if (const auto scale = session.loss_scale()) {
    line["loss_scale"] = scale->scale;
    line["updates_left_out"] = scale->skipped;
  }
  if (ending.last_epoch) {
    line["train_loss"] = ending.last_epoch->train_loss;
    for (const auto& [name, value] : ending.last_epoch->terms) line["train_" + name] = value;
    for (const auto& [name, value] : ending.last_epoch->eval) line["eval_" + name] = value;
  }
  if (ending.best) {
    line["best"] = ending.best->first;
    line["best_step"] = ending.best->second;
  }
  return line;
}

}  // namespace gradloom
