// The metrics of a run for Prometheus.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/session/trainer.h"

namespace gradloom {

// Observes steps on the run's thread, and builds pages on another one.
class RunMetrics : public TrainerObserver {
 public:
  // `run`: the folder; `model`: its path. Both are labels of the page. `terms`: the plan's loss_terms. `saves`: the number of checkpoints
  // that this process has written; called on the run's thread.
  RunMetrics(std::string run, std::string model, std::vector<std::string> terms, std::function<int64_t()> saves);

  void OnStep(const StepReport& step) override;
  void OnEvaluation(const EvaluationReport& evaluation) override;
  void OnEpoch(const EpochReport& epoch) override;
  void OnSave(SaveReason reason) override;

  // In Prometheus' text format, version 0.0.4; docs/watching.md lists the metrics.
  std::string Page() const;

 private:
  using Clock = std::chrono::steady_clock;

  const std::string run_, model_;
  const std::vector<std::string> terms_;
  const std::function<int64_t()> count_saves_;
  const double started_;  // seconds of the epoch

  mutable std::mutex mutex_;
  StepReport last_;
  bool stepped_ = false;
  double last_step_time_ = 0;                                                               // seconds of the epoch
  int64_t batches_ = 0, updates_ = 0, samples_ = 0, skipped_ = 0, epochs_ = 0, saves_ = 0;  // of this process
  Clock::time_point step_end_;
  bool timed_ = false;  // step_end_ is the end of the previous step, with nothing in between
  std::vector<int64_t> in_bucket_;
  double step_seconds_ = 0;
  std::map<std::string, double> evaluated_;
  int64_t evaluated_step_ = 0;
  std::vector<DeviceMemory> memory_;
};

}  // namespace gradloom
