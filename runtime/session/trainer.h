// The loop of a training run: epochs over a data set, evaluations, and decisions when to save and stop. It prints nothing and writes
// nothing; observers do.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/batches.h"
#include "runtime/data/dataset.h"
#include "runtime/session/metrics.h"
#include "runtime/session/plateau.h"
#include "runtime/session/session.h"
#include "runtime/session/shared_training.h"

namespace gradloom {

// An interval: "1ep" is after each epoch, "500" every 500 updates, "10min", "90s", or "never".
struct Interval {
  enum class Unit : uint8_t { kNever, kEpochs, kUpdates, kSeconds };
  Unit unit = Unit::kNever;
  int64_t count = 0;

  // The forms of an interval, for messages.
  static constexpr char kForms[] = "1ep (after each epoch), 500 (updates), 10min, 90s or never";
  // Throws Error(kConfig) naming `what`.
  static Interval Parse(const std::string& text, const std::string& what);
};

// The value that selects the best model: "eval/loss:min", "eval/accuracy:max". The direction is optional.
struct Watch {
  std::string name;  // "loss" or the name of a metric
  bool larger = false;

  static Watch Parse(const std::string& text);
  // As Parse reads it, with the direction: "eval/loss:min".
  std::string ToString() const;
};

struct TrainerOptions {
  int64_t epochs = 1;     // passes over the training data
  int64_t updates = 0;    // above 0: total number of updates, whatever the number of epochs
  int64_t batch = 32;     // rows per batch; the last one of an epoch has the rest, and ends its update
  bool in_order = false;  // each epoch takes the rows as they are; otherwise in an order of its own
  Interval evaluate{Interval::Unit::kEpochs, 1};
  int64_t eval_batch = 0;  // rows per batch of an evaluation; 0: `batch`
  Interval save;
  std::vector<MetricSpec> metrics;
  Watch watch{"loss", false};
  int64_t patience = 0;  // above 0: stop after this many evaluations in a row without improvement
  // Reduces the learning rate if the watched value makes no progress. Only with a constant schedule.
  std::optional<PlateauOptions> plateau;
  // What to do if a loss or state is not finite: end the run with Error(kDiverged), or leave the batch out (with the state as before it;
  // costs a copy of all state per step).
  bool skip_non_finite = false;
  // The divisor of a batch's mean loss, for means over several batches; empty: the batch's rows.
  std::function<double(const Feeds&)> loss_weight;
  // Called after each step; true ends the run after a save.
  std::function<bool()> stop_requested;
  // Whether it is also called between two batches of an evaluation. True then ends the run as if that evaluation had not begun: the trainer
  // that gets the state (Trainer::set_state) begins with it. Not with `shared`.
  bool stops_evaluations = false;
  // Whether an epoch whose evaluation is stopped so is reported, without it: for a caller that does not keep the state.
  bool reports_stopped_epochs = false;
  // Whether to ask for a save (SaveReason::kFailure) before the run ends because a batch cannot be read, trained with or evaluated, if that
  // has left the state as it was after the last step. For a process that runs the plan alone.
  bool saves_on_failure = false;
  // Called after that if `save` is in seconds, instead of using this process's clock, so that processes that save together agree. Empty:
  // use the clock.
  std::function<bool()> save_is_due;
  // If not null, several processes train one set of parameters, each batch by one of them, and the session's executor has
  // shared->parameters(). Steps, epochs and intervals then count what all have done, the run also checks shared->stop(), and neither
  // accumulation nor skip_non_finite is allowed.
  SharedTraining* shared = nullptr;
  // For the process that leads: the session that it evaluates and saves, since the parameters change meanwhile. A session of the same plan
  // with its own memory, to which all state is copied before each evaluation and save.
  Session* snapshot = nullptr;
};

// A loss of one batch, and what it weighs in a mean over several batches.
struct WeighedLoss {
  double value = 0, weight = 0;
};

// A mean over batches. Those without weight do not count, whatever their value: a mean over no label is 0/0.
struct WeightedMean {
  double sum = 0, weight = 0;

  void Add(double value, double of) {
    if (!(of > 0)) return;
    sum += value * of;
    weight += of;
  }
  double value() const { return sum / weight; }  // NaN if nothing was added
};

struct StepReport {
  // The loss is NaN if all labels of the batch are left out; of several terms, it is the sum of those that have labels. If that of an
  // update is the sum over its batches (kUpdateLoss), it is scaled to the rows of the update, so that its mean over them is that sum.
  StepResult result;
  std::vector<WeighedLoss> losses;  // the loss, then its terms if there are several; empty if the batch was skipped
  int64_t epoch = 0;                // from 0
  double epochs_done = 0;           // with a fraction
  int64_t rows = 0;                 // of this batch
  bool skipped = false;             // whether it was left out
  int64_t total_batches = 0;
  double samples_per_s = 0;  // since the epoch began, or was resumed
  // In seconds on the steady clock: when its data was requested, when it was available, when the step was done.
  double asked = 0, began = 0, ended = 0;
};

struct EvaluationReport {
  int64_t step = 0, epoch = 0;
  double epochs_done = 0;                // with a fraction
  std::map<std::string, double> values;  // "loss", the terms of a loss that has several ("loss/box"), and the metrics
  double seconds = 0;
  bool best = false;  // better than all before
  // Whether the watched metric is NaN because the data does not define it (auroc over a single class). The evaluation is then neither
  // better nor worse.
  bool undefined = false;
  double lr = 0;  // the new learning rate, if it was reduced; 0: it was not
};

struct EpochReport {
  int64_t epoch = 0, step = 0;                                // epoch from 1
  double train_loss = 0, lr = 0;                              // mean over the epoch's samples; of the last update
  double seconds = 0, samples_per_s = 0, waited_seconds = 0;  // for data
  // By name, the means of the terms of a loss that has several; empty for shared parameters, where only sums of the whole loss are shared.
  std::map<std::string, double> terms;
  std::map<std::string, double> eval;  // of the evaluation at its end, if there was one
  std::vector<DeviceMemory> memory;    // by device, at its end
};

enum class StopReason : uint8_t { kDone, kRequested, kNoImprovement };
enum class SaveReason : uint8_t { kInterval, kBest, kEnd, kStopRequested, kFailure };

// Called for each event, in order. An observer may throw; the run then ends with that error.
class TrainerObserver {
 public:
  virtual ~TrainerObserver() = default;
  virtual void OnStep(const StepReport&) {}
  // An evaluation begins; OnEvaluation reports its result, unless it is interrupted.
  virtual void OnEvaluationStart() {}
  virtual void OnEvaluation(const EvaluationReport&) {}
  virtual void OnEpoch(const EpochReport&) {}
  // Session and trainer are between two steps, or a failed step has changed neither (kFailure). Always called at the end of a run and for a
  // stop.
  virtual void OnSave(SaveReason) {}
};

// Throws Error(kConfig) for options that contradict each other or the schedule of a plan.
void CheckTrainerOptions(const TrainerOptions& options, const Schedule& schedule);

// The rows and order of an epoch's batches depend only on the seed and the epoch, and the position in it on session.batch(). So a trainer
// over a session that was set to a position continues from there.
class Trainer {
 public:
  // All are borrowed. `eval` without rows: nothing is evaluated. The session has the epochs of the training data (Session::set_epoch) as
  // long as the trainer lives. Throws Error(kConfig) like CheckTrainerOptions.
  Trainer(Session& session, const Dataset& train, const Dataset& eval, TrainerOptions options, TrainerObserver& observer);
  ~Trainer();

  // Throws Error(kDiverged) for a loss that is not finite (or too many such batches in a row that were left out), and what steps, metrics
  // and the observer throw.
  StopReason Run();

  // The state to save, besides the session's state and position, for continuing to the same bits; one line of text.
  std::string state() const;
  // Throws Error(kCheckpoint) for an invalid text.
  void set_state(const std::string& text);
  // What the run whose state was set had watched, if that was something else: its best value is not compared with. Otherwise "".
  const std::string& formerly_watched() const { return formerly_watched_; }

  int64_t batches_per_epoch() const;
  int64_t total_batches() const;
  // Whether a stop has interrupted the evaluation after the last step.
  bool evaluation_due() const { return evaluation_due_; }
  bool has_best() const { return best_step_ >= 0; }
  double best() const { return best_; }
  int64_t best_step() const { return best_step_; }
  double waited_seconds() const { return waited_seconds_; }
  int64_t skipped() const { return skipped_; }  // batches left out

 private:
  static double Now();  // seconds on the steady clock
  bool Finished() const;
  bool IsStagnant() const;  // whether there were too many evaluations without improvement
  StepReport Step();
  // Saves, if the options say so and the state is whole, since the error ends the run. Throws nothing.
  void SaveBeforeFailure(const Error& error) noexcept;
  // What follows a step: an evaluation, the end of an epoch, saves. Returns why the run ends; nullopt: it continues.
  std::optional<StopReason> EndStep(bool updated);
  // The loop of a process that trains shared parameters.
  StopReason RunShared();
  int64_t NextShared();
  void HandleShared(StepReport& step, int64_t seen);
  void EndShared();
  void TakeSnapshot();
  // The feeds of a batch of the epoch, made ahead or now.
  const Feeds& FeedsOf(int64_t index);
  // Makes them ahead; null if the epoch has no such batch, or it cannot be read, which is reported when it is needed.
  const Feeds* Prefetch(int64_t index);
  // Runs the step of a batch of report.rows rows. Sets result, losses and skipped.
  void StepOrSkip(const Feeds& feeds, StepReport& report);
  // How many times the `rows` of the next batch its update has, if the losses of its batches are summed; otherwise 1.
  double SharesOfUpdate(int64_t rows) const;
  // Tells the observer. Adds to an error about state that is not finite where that came from, if that is known.
  void AskToSave(SaveReason reason);
  void StartEpoch(int64_t epoch);
  // Makes batches_ of the epoch from batch `index` on: all of it, or this process's part.
  void OpenBatches(int64_t index);
  void StartClock();
  WeightedMean EpochLoss() const;  // of the current epoch
  // Of the batches that processes sharing parameters have counted since the epoch began.
  WeightedMean LossSince(const SharedCounts& counts) const;
  // The session that is evaluated and saved.
  Session& judged() const { return options_.snapshot != nullptr ? *options_.snapshot : session_; }
  // `counts`: of all processes that share parameters.
  void EndEpoch(int64_t epoch, const SharedCounts& counts = {});
  // Whether the interval ends with the step that was just made, which may have ended an update.
  bool IsDue(const Interval& interval, bool updated) const;
  // Returns whether the model is better than at all evaluations before; nullopt: a stop was requested meanwhile, as `may_stop` permits.
  std::optional<bool> EvaluateAndCompare(int64_t epoch, bool may_stop);
  void Save(SaveReason reason);

  Session& session_;
  const Dataset& train_;
  const Dataset& eval_;
  TrainerOptions options_;
  TrainerObserver& observer_;
  const int64_t epoch_before_;  // the session's, which it has again after this trainer

  std::vector<int64_t> order_;  // the order of the rows in the epoch of batches_
  std::unique_ptr<Batches> batches_;
  int64_t order_epoch_ = -1;
  int64_t batches_first_ = 0;       // index in the epoch of the first batch in batches_
  Feeds feeds_, prefetched_feeds_;  // of the current batch, and of the next one, made during the current step
  int64_t ahead_ = -1;              // index of the next one; -1: none

  // The current epoch.
  WeightedMean loss_;
  std::vector<WeightedMean> terms_;  // by position in Plan::loss_terms; they cover less than loss_ if a checkpoint has none
  // Of this process only, in seconds on the steady clock.
  double epoch_started_ = 0, epoch_waited_ = 0, saved_at_ = 0, waited_seconds_ = 0;
  int64_t epoch_rows_ = 0;
  double last_lr_ = 0;
  std::map<std::string, double> last_eval_;
  int64_t last_eval_batch_ = -1;

  double best_ = 0;
  int64_t best_step_ = -1;
  int64_t stagnant_evaluations_ = 0;
  std::string formerly_watched_;
  int64_t skipped_ = 0, skipped_in_a_row_ = 0;
  // Requests that wait until the state can be saved.
  bool stop_ = false, save_is_due_ = false;
  bool evaluation_due_ = false;
  std::optional<Plateau> plateau_;

  // For shared parameters.
  int64_t own_updates_ = -1;                                      // number of updates of this process's optimizer state; -1: the run's
  int64_t claimed_next_ = 0, claimed_end_ = 0;                    // range of the run's batches that this process has taken
  double epoch_loss_ = std::numeric_limits<double>::quiet_NaN();  // of the last epoch that ended with batches of its own
  SharedCounts epoch_base_;                                       // when the epoch began
};

// For TrainerOptions::loss_weight: the divisor of a batch's loss if it is a mean over something other than rows, for example over classes
// that are not ignored or over class weights. Empty if rows can be used for this data, and for `more`, such as that of evaluations; null:
// there is none. With several losses that have different divisors, rows are used. `losses`: the plan's.
std::function<double(const Feeds&)> LossWeightOf(std::span<const LossInfo> losses, const Dataset& data, const Dataset* more = nullptr);

// Whether one of the plan's losses over classes has no label in this batch of `rows` rows, because all are left out. A mean over them is
// 0/0 = NaN and its gradients are 0, as in PyTorch. Of a job whose processes run one session together, all must call it.
bool LeavesOutLabels(const Session& session, EntryKind kind, const Feeds& feeds, int64_t rows);

// The loss of a batch, then its terms if there are several. `left_out`: as LeavesOutLabels says; what is NaN has no weight then, and the
// loss is the sum of the other terms.
std::vector<WeighedLoss> WeighLosses(double loss, std::span<const double> terms, double weight, bool left_out);

// An error about the numbers of a batch, with the batch as part of its place; others as they are.
Error InBatch(const Error& error, const std::string& batch);

// Rows per batch of an evaluation.
inline int64_t EvaluationBatch(const TrainerOptions& options) { return options.eval_batch > 0 ? options.eval_batch : options.batch; }

// "loss", its terms if there are several, and the metrics of a session's plan over a data set, in batches of EvaluationBatch rows. The loss
// is the mean over the batches, each weighted by options.loss_weight; a loss that has no label in a batch leaves that batch out. `stop`: if
// given, called between two batches; true ends the evaluation, and the map is empty.
std::map<std::string, double> EvaluateOver(Session& session, const Dataset& data, const TrainerOptions& options,
                                           const std::function<bool()>& stop = {});

}  // namespace gradloom
