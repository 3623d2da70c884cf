#include "tools/run/train/run_observers.h"

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/run/records/run_records.h"
#include "tools/screen/screen.h"

namespace gradloom {

void Observers::OnStep(const StepReport& report) {
  for (TrainerObserver* observer : list_) observer->OnStep(report);
}

void Observers::OnEvaluationStart() {
  job_.set_phase(JobPhase::kEvaluation);
  for (TrainerObserver* observer : list_) observer->OnEvaluationStart();
}

void Observers::OnEvaluation(const EvaluationReport& report) {
  job_.set_phase(JobPhase::kSteps);
  for (TrainerObserver* observer : list_) observer->OnEvaluation(report);
}

void Observers::OnEpoch(const EpochReport& report) {
  for (TrainerObserver* observer : list_) observer->OnEpoch(report);
}

void Observers::OnSave(SaveReason reason) {
  job_.set_phase(JobPhase::kSave);
  if (awaited_) job_.SetBusy(true);
  for (TrainerObserver* observer : list_) observer->OnSave(reason);
  if (awaited_) job_.SetBusy(false);
  job_.set_phase(JobPhase::kSteps);
}

void KernelNotes::OnStep(const StepReport&) {
  if (const std::string note = session_.executor().TakeMemoryNote(); !note.empty()) Print(note);
  if (printed_) return;
  const std::vector<std::string> notes = session_.executor().TakeNotes();
  if (notes.empty()) return;
  printed_ = true;
  Print(notes[0] + (notes.size() > 1 ? "   [and " + std::to_string(notes.size() - 1) + " more like it]" : ""));
}

void KernelNotes::Print(const std::string& note) {
  clear_();
  log_.Line("notice  " + note);
}

void ReportLines::OnStep(const StepReport& report) {
  if (!report.result.updated) return;
  const bool due = PassesMultiple(last_step_, report.result.step, every_);
  last_step_ = report.result.step;
  if (!due) return;
  std::map<std::string, double> terms;
  for (size_t i = 0; i < report.result.terms.size(); ++i) terms.emplace(terms_.at(i), report.result.terms[i]);
  std::printf("%s\n", TrainLine(report, report.result.loss, terms, gpu_bytes_).dump().c_str());
  std::fflush(stdout);
}

void ReportLines::OnEvaluation(const EvaluationReport& report) {
  std::printf("%s\n", EvaluationLine(report).dump().c_str());
  std::fflush(stdout);
}

void JobLog::OnEpoch(const EpochReport& epoch) {
  if (job_.alone()) return;
  const TrainingJob::WaitTime waited = job_.TakeWaitTime();
  if (file_) {
    log_.Record("epoch   " + std::to_string(epoch.epoch) + "  step " + WithCommas(epoch.step) + "  " + Duration(waited.of) + ", waited " +
                Duration(waited.seconds) + " for others");
  }
  if (const std::string late = job_.LateProcess(); !late.empty()) {
    clear_();
    log_.Line("straggler " + late);
  }
}

void JobLog::OnEvaluation(const EvaluationReport& evaluation) {
  if (!file_) return;
  std::string line = "eval    step " + WithCommas(evaluation.step);
  for (const auto& [name, value] : evaluation.values) line += "  " + name + " " + Short(value);
  log_.Record(line);
}

}  // namespace gradloom
