// Observers of a run's steps, evaluations and epochs.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/session/trainer.h"
#include "tools/run/train/training_job.h"
#include "tools/screen/log.h"

namespace gradloom {

// Combines several observers, which are called in this order. All must outlive it.
class Observers : public TrainerObserver {
 public:
  // Reports the process's activity to the job. `awaited`: whether other processes wait while this one writes files.
  Observers(std::vector<TrainerObserver*> list, TrainingJob& job, bool awaited) : list_(std::move(list)), job_(job), awaited_(awaited) {}

  void OnStep(const StepReport& report) override;
  void OnEvaluationStart() override;
  void OnEvaluation(const EvaluationReport& report) override;
  void OnEpoch(const EpochReport& report) override;
  void OnSave(SaveReason reason) override;

 private:
  const std::vector<TrainerObserver*> list_;
  TrainingJob& job_;
  const bool awaited_;
};

// Reports once that kernels replace a library's, and how many.
class KernelNotes : public TrainerObserver {
 public:
  // `clear`: removes the progress bar from the screen. Session and log must outlive it.
  KernelNotes(Session& session, Log& log, std::function<void()> clear) : session_(session), log_(log), clear_(std::move(clear)) {}

  void OnStep(const StepReport& report) override;

 private:
  void Print(const std::string& note);

  Session& session_;
  Log& log_;
  const std::function<void()> clear_;
  bool printed_ = false;
};

// For programs that read a run's stdout while it trains: prints lines of metrics.jsonl, one for every so many updates and one for each
// evaluation.
class ReportLines : public TrainerObserver {
 public:
  // `terms`: the plan's loss_terms; `gpu_bytes`: see TrainLine.
  ReportLines(int64_t every, std::vector<std::string> terms, int64_t gpu_bytes)
      : every_(every), terms_(std::move(terms)), gpu_bytes_(gpu_bytes) {}

  void OnStep(const StepReport& report) override;
  void OnEvaluation(const EvaluationReport& report) override;

 private:
  const int64_t every_;
  const std::vector<std::string> terms_;
  const int64_t gpu_bytes_;
  int64_t last_step_ = -1;  // of an update
};

// Reports the waiting times of a process's peers after each epoch: rank 0 on the screen, the others in a file.
class JobLog : public TrainerObserver {
 public:
  // `file`: whether the log of other ranks is written. `clear`: removes the progress bar from the screen. Job and log must outlive it.
  JobLog(TrainingJob& job, Log& log, bool file, std::function<void()> clear)
      : job_(job), log_(log), file_(file && !job.leads()), clear_(std::move(clear)) {}

  void OnEpoch(const EpochReport& epoch) override;
  void OnEvaluation(const EvaluationReport& evaluation) override;

 private:
  TrainingJob& job_;
  Log& log_;
  const bool file_;
  const std::function<void()> clear_;
};

}  // namespace gradloom
