// The training loop of a process that shares parameters with others (SharedTraining).
#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/session/schedule.h"
#include "runtime/session/session_copy.h"
#include "runtime/session/trainer.h"

namespace gradloom {
namespace {

// Batches from row sources (images) are taken in groups of this size, since threads make them ahead.
constexpr int64_t kLazyBatches = 8;

}  // namespace

int64_t Trainer::NextShared() {
  if (claimed_next_ == claimed_end_) {
    const int64_t count = train_.lazy_columns().empty() ? 1 : kLazyBatches;
    claimed_next_ = options_.shared->Claim(count);
    claimed_end_ = claimed_next_ + count;
  }
  return claimed_next_++;
}

StopReason Trainer::RunShared() {
  SharedTraining& shared = *options_.shared;
  GRADLOOM_CHECK(session_.plan().accumulate == 1 && !options_.skip_non_finite);
  if (Finished()) return StopReason::kDone;
  if (own_updates_ < 0) own_updates_ = session_.step();
  epoch_base_ = {.loss_sum = -loss_.sum, .loss_weight = -loss_.weight};
  loss_ = {};
  if (plateau_) shared.BeginLearningRate(plateau_->lr());
  StartClock();
  int64_t seen = session_.batch();
  // A process that has finished waits for the others.
  shared.SetBusy(true);
  while (shared.stop() == 0) {
    const int64_t batch = NextShared();
    if (batch >= total_batches()) break;
    session_.set_position(own_updates_, batch);
    const double lr = shared.learning_rate();
    session_.set_learning_rate(lr >= 0 ? lr : LearningRate(session_.plan().schedule, batch));
    const int64_t before = shared.done();
    StepReport step = Step();
    own_updates_ = session_.step();
    const int64_t done = shared.Finish(step.rows, loss_.sum, loss_.weight, before);
    loss_ = {};
    terms_.clear();
    step.result.step = step.result.batch = done;
    step.epochs_done = static_cast<double>(done) / static_cast<double>(batches_per_epoch());
    if (shared.leads()) HandleShared(step, seen);
    seen = done;
    if (options_.stop_requested) options_.stop_requested();
  }
  shared.SetBusy(false);
  shared.Barrier();
  const int64_t done = shared.done();
  session_.set_position(done, done);
  session_.set_learning_rate(shared.learning_rate());
  if (shared.leads()) EndShared();
  if (done >= total_batches()) return StopReason::kDone;
  return shared.stop() == SharedTraining::kNoImprovement ? StopReason::kNoImprovement : StopReason::kRequested;
}

// Handles evaluations and saves that became due between the last batch that this process saw and the current one.
void Trainer::HandleShared(StepReport& step, int64_t seen) {
  const int64_t done = step.result.batch, per_epoch = batches_per_epoch();
  // Before an evaluation, during which others go on.
  const SharedCounts counts = options_.shared->counts();
  const int64_t rows = counts.rows - epoch_base_.rows;
  step.samples_per_s = static_cast<double>(rows) / std::max(Now() - epoch_started_, 1e-9);
  observer_.OnStep(step);
  if (done >= total_batches()) return;
  const auto due = [&](const Interval& interval) {
    switch (interval.unit) {
      case Interval::Unit::kNever: return false;
      case Interval::Unit::kEpochs: return done / per_epoch / interval.count > seen / per_epoch / interval.count;
      case Interval::Unit::kUpdates: return done / interval.count > seen / interval.count;
      case Interval::Unit::kSeconds: return Now() - saved_at_ >= static_cast<double>(interval.count);
    }
    return false;
  };
  const bool evaluates = eval_.rows() > 0 && due(options_.evaluate), saves = due(options_.save);
  const bool epoch_ended = done / per_epoch > seen / per_epoch;
  if (evaluates || saves || epoch_ended) TakeSnapshot();
  const bool better = evaluates && *EvaluateAndCompare((done - 1) / per_epoch, /*may_stop=*/false);
  if (epoch_ended) EndEpoch(done / per_epoch - 1, counts);
  if (better) observer_.OnSave(SaveReason::kBest);
  if (IsStagnant()) return options_.shared->RequestStop(SharedTraining::kNoImprovement);
  if (saves) Save(SaveReason::kInterval);
}

// All processes have arrived, and none writes parameters any more.
void Trainer::EndShared() {
  TakeSnapshot();
  const int64_t done = judged().batch(), epoch = (done - 1) / batches_per_epoch();
  if (done < total_batches())
    return Save(options_.shared->stop() == SharedTraining::kNoImprovement ? SaveReason::kEnd : SaveReason::kStopRequested);
  const bool better =
      eval_.rows() > 0 && options_.evaluate.unit != Interval::Unit::kNever && *EvaluateAndCompare(epoch, /*may_stop=*/false);
  EndEpoch(epoch, options_.shared->counts());
  if (better) observer_.OnSave(SaveReason::kBest);
  Save(SaveReason::kEnd);
}

// Other processes may be writing. The position is that of all processes, not of this session.
void Trainer::TakeSnapshot() {
  const int64_t done = options_.shared->done();
  CopyState(session_, judged());
  judged().set_position(done, done);
  judged().set_learning_rate(options_.shared->learning_rate());
}

}  // namespace gradloom
