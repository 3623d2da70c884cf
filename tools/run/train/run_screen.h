// The output of a training run: the first lines, its progress, and the table at its end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/session/update_rule.h"
#include "tools/config/configuration.h"
#include "tools/run/set_up.h"
#include "tools/screen/log.h"
#include "tools/screen/screen.h"

namespace gradloom {

// `run`: the folder; "": there is none yet.
void PrintHeader(Log& log, const Configuration& configuration, const TrainingSetUp& set_up, const std::string& run);

class RunScreen : public TrainerObserver {
 public:
  RunScreen(Log& log, const Configuration& configuration, const TrainingSetUp& set_up);

  void OnStep(const StepReport& step) override;
  void OnEvaluation(const EvaluationReport& evaluation) override;
  void OnEpoch(const EpochReport& epoch) override;

  // Clears the line of the progress bar.
  void Clear() { progress_.Clear(); }

  // Prints a line per epoch, or a selection of many epochs.
  void PrintTable();

  // Total of all epochs.
  double seconds() const { return seconds_; }
  // Null before the first epoch has ended.
  const EpochReport* last_epoch() const { return count_ > 0 ? &last_ : nullptr; }

 private:
  struct Kept {
    int64_t number;  // from 1
    EpochReport epoch;
  };

  Log& log_;
  Progress progress_;
  const int64_t total_epochs_;
  const UpdateRule rule_;
  std::string metrics_;
  const std::vector<std::string> terms_;  // the plan's loss_terms
  std::vector<std::string> columns_;      // of the evaluations, in the order of the table
  int64_t best_step_ = -1;
  int64_t skipped_ = 0;
  const std::string watched_;      // what selects the best model
  const bool has_rate_;            // a learning rate, which lines show
  bool warned_undefined_ = false;  // that it was undefined
  // A bounded number of epochs for runs of any length: those whose number `stride_` divides.
  std::vector<Kept> kept_;
  int64_t count_ = 0, stride_ = 1;
  EpochReport last_;
  std::optional<Kept> best_;
  double seconds_ = 0;
};

}  // namespace gradloom
