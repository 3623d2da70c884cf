// The loop of a training run: epochs over a data set, evaluation, and when to save and to stop. It prints nothing and
// writes nothing; whoever runs it watches.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/session/batches.h"
#include "runtime/session/dataset.h"
#include "runtime/session/metrics.h"
#include "runtime/session/plateau.h"
#include "runtime/session/session.h"
#include "runtime/session/shared_training.h"

namespace gradloom {

// How often something is done: "1ep" after each epoch, "500" after each 500 updates, "10min", "90s", or "never".
struct Interval {
  enum class Unit : uint8_t { kNever, kEpochs, kUpdates, kSeconds };
  Unit unit = Unit::kNever;
  int64_t count = 0;

  // Throws Error(kConfig) naming `what`.
  static Interval Parse(const std::string& text, const std::string& what);
};

// The value that tells a better model: "eval/loss:min", "eval/accuracy:max". The direction may be left out.
struct Watch {
  std::string name;  // "loss" or a metric's
  bool larger = false;

  static Watch Parse(const std::string& text);
};

struct TrainerOptions {
  int64_t epochs = 1;   // passes over the training data
  int64_t updates = 0;  // above 0: so many updates in all, however many epochs that is
  int64_t batch = 32;   // rows of a batch; the last one of an epoch has what is left
  Interval evaluate{Interval::Unit::kEpochs, 1};
  Interval save;
  std::vector<MetricSpec> metrics;
  Watch watch{"loss", false};
  int64_t patience = 0;  // above 0: stop after so many evaluations in a row that were not better
  // Reduces the learning rate where the watched value makes no progress. Only with a constant schedule.
  std::optional<PlateauOptions> plateau;
  // What a loss or state that is not finite does: end the run with Error(kDiverged), or leave the batch out (state as
  // before it; costs a copy of all state each step).
  bool skip_non_finite = false;
  // The divisor of a batch's mean loss, for a mean over several batches; empty: the batch's rows.
  std::function<double(const Feeds&)> loss_weight;
  // Asked after each step; true ends the run after a save.
  std::function<bool()> stop_requested;
  // Asked after that where `save` is in seconds, in place of this process's clock: processes that save together agree. Empty: the clock.
  std::function<bool()> save_is_due;
  // Several processes train one set of parameters, each batch by one of them; the session's executor has shared->parameters(). Null: a run
  // by itself. Steps, epochs and intervals then count what all have done, `stop_requested` asks shared->stop() too, and there is neither
  // accumulation nor skip_non_finite.
  SharedTraining* shared = nullptr;
  // Of the process that leads: what it evaluates and saves, as the parameters change meanwhile. A session of the same plan with memory of
  // its own, to which all state is copied before each evaluation and save.
  Session* snapshot = nullptr;
};

struct StepReport {
  StepResult result;
  int64_t epoch = 0;       // from 0
  double epochs_done = 0;  // with a fraction
  int64_t rows = 0;        // of this batch
  bool skipped = false;    // it was left out
  int64_t total_batches = 0;
  double samples_per_s = 0;  // since the epoch, or this run of it, began
  // By the steady clock, in seconds: when its data were asked for, when they were there, when the step was done.
  double asked = 0, began = 0, ended = 0;
};

struct EvaluationReport {
  int64_t step = 0, epoch = 0;
  std::map<std::string, double> values;  // "loss" and the metrics
  double seconds = 0;
  bool best = false;  // better than all before
  double lr = 0;      // from here on, where it was reduced; 0: it was not
};

struct EpochReport {
  int64_t epoch = 0, step = 0;                                // epoch from 1
  double train_loss = 0, lr = 0;                              // the mean over the epoch's samples; the last update's
  double seconds = 0, samples_per_s = 0, waited_seconds = 0;  // for data
  std::map<std::string, double> eval;                         // of the evaluation at its end, if there was one
  std::vector<DeviceMemory> memory;                           // by device, at its end
};

enum class StopReason : uint8_t { kDone, kRequested, kNoBetter };
enum class SaveReason : uint8_t { kInterval, kBest, kEnd, kStopRequested };

// What happens, in order. An observer may throw; the run ends with that error.
class TrainerObserver {
 public:
  virtual ~TrainerObserver() = default;
  virtual void OnStep(const StepReport&) {}
  // One begins, and OnEvaluation says what it gave.
  virtual void OnEvaluationStart() {}
  virtual void OnEvaluation(const EvaluationReport&) {}
  virtual void OnEpoch(const EpochReport&) {}
  // Session and trainer are between two steps. At the end of a run and for a stop there is always one.
  virtual void OnSave(SaveReason) {}
};

// Throws Error(kConfig) for options that cannot be, together or with the schedule of a plan.
void CheckTrainerOptions(const TrainerOptions& options, const Schedule& schedule);

// Which rows the batches of an epoch have and in which order is a function of the seed and the epoch, and the place in
// it of session.batch(): a trainer over a session that was set to a position goes on from there.
class Trainer {
 public:
  // All are borrowed. `eval` without rows: nothing is evaluated. Throws Error(kConfig) as CheckTrainerOptions does.
  Trainer(Session& session, const Dataset& train, const Dataset& eval, TrainerOptions options, TrainerObserver& observer);
  ~Trainer();

  // Throws Error(kDiverged) for a loss that is not finite (or too many batches in a row that were left out for that),
  // and what steps, metrics and the observer throw.
  StopReason Run();

  // Loss and metrics over all of the evaluation data.
  std::map<std::string, double> Evaluate();

  // What has to be kept beside the session's state and position to go on to the same bits, as one line of text.
  std::string state() const;
  // Throws Error(kCheckpoint) for a text that is none.
  void set_state(const std::string& text);

  int64_t batches_per_epoch() const;
  int64_t total_batches() const;
  bool has_best() const { return best_step_ >= 0; }
  double best() const { return best_; }
  int64_t best_step() const { return best_step_; }
  double waited_seconds() const { return waited_seconds_; }
  int64_t skipped() const { return skipped_; }  // batches left out

 private:
  static double Now();  // seconds on the steady clock
  bool Finished() const;
  bool Enough() const;  // evaluations that were not better
  StepReport Step();
  // The loop of a process that trains shared parameters.
  StopReason RunShared();
  int64_t NextShared();
  void WatchShared(StepReport& step, int64_t seen);
  void EndShared();
  void TakeSnapshot();
  // The feeds of a batch of the epoch: those that were made ahead, or made now.
  const Feeds& FeedsOf(int64_t index);
  // Makes those of the next batch; null where there is none, or it cannot be read, which is told when it is wanted.
  const Feeds* MakeAhead();
  void StepOrSkip(const Feeds& feeds, StepReport& report);
  void StartEpoch(int64_t epoch);
  // Makes batches_ of the epoch from batch `index` on: of all of it, or of those that are this process's.
  void OpenBatches(int64_t index);
  void StartClock();
  // Losses and weights of the epoch under way, and what follows of it in what is kept.
  std::pair<double, double> EpochLoss() const;
  // What is evaluated and saved.
  Session& judged() const { return options_.snapshot != nullptr ? *options_.snapshot : session_; }
  void EndEpoch(int64_t epoch);
  bool Due(const Interval& interval, const StepReport& step) const;
  bool EvaluateAndCompare(int64_t epoch);
  void Save(SaveReason reason);

  Session& session_;
  const Dataset& train_;
  const Dataset& eval_;
  TrainerOptions options_;
  TrainerObserver& observer_;

  std::vector<int64_t> order_;  // of the epoch that batches_ is of
  std::unique_ptr<Batches> batches_;
  int64_t order_epoch_ = -1;
  int64_t batches_first_ = 0;  // of the epoch's batches, the first that batches_ has
  Feeds feeds_, ahead_feeds_;  // of the batch under way, and of the next one, made while that one runs
  int64_t ahead_ = -1;         // which one that is; -1: none

  // The epoch under way.
  double loss_sum_ = 0, loss_weight_ = 0;
  // Of this process alone, in seconds on the steady clock.
  double epoch_started_ = 0, epoch_waited_ = 0, saved_at_ = 0, waited_seconds_ = 0;
  int64_t epoch_rows_ = 0;
  double last_lr_ = 0;
  std::map<std::string, double> last_eval_;
  int64_t last_eval_batch_ = -1;

  double best_ = 0;
  int64_t best_step_ = -1;
  int64_t not_better_ = 0;
  int64_t skipped_ = 0, skipped_in_a_row_ = 0;
  // What waits for a moment at which the state can be kept.
  bool stop_ = false, save_is_due_ = false;
  std::optional<Plateau> plateau_;

  // Of shared parameters.
  int64_t own_updates_ = -1;                    // which the optimizer state of this process has had; -1: the run's
  int64_t claimed_next_ = 0, claimed_end_ = 0;  // batches of the run that are this process's
  SharedCounts epoch_base_;                     // when the epoch began
};

// "loss" and the metrics of a session's plan over a data set, in batches of options.batch rows. The loss is the mean of
// those of the batches, each weighted by options.loss_weight.
std::map<std::string, double> EvaluateOver(Session& session, const Dataset& data, const TrainerOptions& options);

}  // namespace gradloom
