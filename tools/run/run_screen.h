// What a training run shows: the first lines, how far it is, and the table at its end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/config/configuration.h"
#include "tools/run/set_up.h"
#include "tools/screen/log.h"
#include "tools/screen/screen.h"

namespace gradloom {

// `run`: the folder; "": none yet.
void PrintHeader(Log& log, const Configuration& configuration, const TrainingSetUp& set_up, const std::string& run);

class RunScreen : public TrainerObserver {
 public:
  RunScreen(Log& log, const Configuration& configuration, const TrainingSetUp& set_up);

  void OnStep(const StepReport& step) override;
  void OnEvaluation(const EvaluationReport& evaluation) override;
  void OnEpoch(const EpochReport& epoch) override;

  // Leaves the line of the progress bar.
  void Clear() { progress_.Clear(); }

  // A line per epoch, of many epochs every so many.
  void PrintTable();

  // Of all epochs together.
  double seconds() const { return seconds_; }
  // Null before the first has ended.
  const EpochReport* last_epoch() const { return count_ > 0 ? &last_ : nullptr; }

 private:
  struct Kept {
    int64_t number;  // from 1
    EpochReport epoch;
  };

  Log& log_;
  Progress progress_;
  const int64_t total_epochs_, accumulate_;
  double epochs_done_ = 0;
  std::string metrics_;
  std::vector<std::string> columns_;  // of evaluations, in the order of the table
  int64_t best_step_ = -1;
  int64_t skipped_ = 0;
  // Of a run of any length so many that the table has a choice: each number that `apart_` divides.
  std::vector<Kept> kept_;
  int64_t count_ = 0, apart_ = 1;
  EpochReport last_;
  std::optional<Kept> best_;
  double seconds_ = 0;
};

}  // namespace gradloom
