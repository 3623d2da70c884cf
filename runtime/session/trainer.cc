#include "runtime/session/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/number_text.h"
#include "runtime/base/read_number.h"
#include "runtime/comm/communicator.h"
#include "runtime/plan/loss_info.h"
#include "runtime/plan/sample_axes.h"
#include "runtime/session/schedule.h"
#include "runtime/session/shared_batches.h"
#include "runtime/session/update_rule.h"

namespace gradloom {
namespace {

constexpr int64_t kMaxSkippedInARow = 100;

// What to do about a loss that is not finite. Data that is not finite comes first: nothing else helps then.
std::string HelpForDiverged(const Dataset& train) {
  for (const auto& [name, column] : train.columns()) {
    if (!IsFloating(column.dtype())) continue;
    const TensorView values = column.view();
    int64_t count = 0;
    for (int64_t i = 0; i < values.elements(); ++i) count += !std::isfinite(ElementAsDouble(values, i));
    if (count == 0) continue;
    return "the training data of '" + Escaped(name) + "' has " + Counted(count, "value that is", "values that are") +
           " NaN or infinite: remove the rows, or replace NaN with the transform 'fill mean'";
  }
  return "use a smaller --lr or --clip-norm 1, or look for NaN in the data";
}

}  // namespace

double Trainer::Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Interval Interval::Parse(const std::string& text, const std::string& what) {
  if (text == "never") return {};
  std::string_view unit = text;
  const int64_t count = TakeNumber<int64_t>(unit).value_or(0);
  if (count > 0 && count < (int64_t{1} << 40)) {
    if (unit.empty()) return {Unit::kUpdates, count};
    if (unit == "ep") return {Unit::kEpochs, count};
    if (unit == "s") return {Unit::kSeconds, count};
    if (unit == "min") return {Unit::kSeconds, count * 60};
    if (unit == "h") return {Unit::kSeconds, count * 3600};
  }
  throw Error(ErrorCode::kConfig, what + " cannot be '" + Escaped(text) + "'", "", std::string("expected ") + kForms);
}

Watch Watch::Parse(const std::string& text) {
  std::string name = text.starts_with("eval/") ? text.substr(5) : text;
  const size_t colon = name.rfind(':');  // names of outputs may contain colons as well
  const std::string direction = colon == std::string::npos ? "" : name.substr(colon + 1);
  name = name.substr(0, colon);
  if (name.empty() || (!direction.empty() && direction != "min" && direction != "max") ||
      (colon != std::string::npos && direction.empty())) {
    throw Error(ErrorCode::kConfig, "cannot watch '" + Escaped(text) + "'", "", "expected eval/loss:min or eval/accuracy:max");
  }
  name = MetricNameOf(name);
  return {name, direction.empty() ? LargerIsBetter(name) : direction == "max"};
}

std::string Watch::ToString() const { return "eval/" + name + (larger ? ":max" : ":min"); }

void CheckTrainerOptions(const TrainerOptions& options, const Schedule& schedule) {
  if (options.batch < 1) throw Error(ErrorCode::kConfig, "the batch size must be at least 1");
  if (options.evaluate.unit == Interval::Unit::kSeconds)
    throw Error(ErrorCode::kConfig, "the evaluation interval must be in epochs or updates, so that a run can be repeated", "",
                "use --eval-every 1ep");
  for (const MetricSpec& spec : options.metrics) Metric::Make(spec);
  CheckSchedule(schedule);
  if (options.plateau && (schedule.kind != "constant" || schedule.attributes.has("warmup_steps"))) {
    throw Error(ErrorCode::kConfig, "a learning rate that is reduced on a plateau cannot also follow a schedule", "",
                "leave out --schedule and --warmup, or --plateau-patience");
  }
}

Trainer::Trainer(Session& session, const Dataset& train, const Dataset& eval, TrainerOptions options, TrainerObserver& observer)
    : session_(session), train_(train), eval_(eval), options_(std::move(options)), observer_(observer), epoch_before_(session.epoch()) {
  if (train.rows() < 1) throw Error(ErrorCode::kData, "the training data has no rows");
  CheckTrainerOptions(options_, session.plan().schedule);
  if (options_.plateau) plateau_.emplace(*options_.plateau, session.learning_rate());
  session_.set_epoch(batches_per_epoch());
}

Trainer::~Trainer() {
  // No batch may be prepared ahead for a destroyed trainer.
  session_.DropPrefetch();
  // Later steps know nothing of these epochs, but the batches since the last update still count towards the next one.
  const int64_t accumulated = session_.accumulated();
  session_.set_epoch(epoch_before_);
  session_.set_accumulated(accumulated);
}

int64_t Trainer::batches_per_epoch() const { return (train_.rows() + options_.batch - 1) / options_.batch; }

int64_t Trainer::total_batches() const {
  // A number too large for the type means a run that callbacks end.
  if (options_.updates > 0) return UpdateRuleOf(session_.plan(), batches_per_epoch()).BatchesOf(options_.updates);
  return CheckedMul(options_.epochs, batches_per_epoch()).value_or(std::numeric_limits<int64_t>::max());
}

bool Trainer::Finished() const { return session_.batch() >= total_batches(); }

bool Trainer::IsStagnant() const { return options_.patience > 0 && stagnant_evaluations_ >= options_.patience; }

StopReason Trainer::Run() {
  saved_at_ = Now();
  // The run was stopped for this reason before and has been resumed.
  if (IsStagnant()) return StopReason::kNoImprovement;
  if (options_.shared != nullptr) return RunShared();
  if (evaluation_due_) {
    StartClock();
    if (const std::optional<StopReason> reason = EndStep(/*updated=*/true)) return *reason;
  }
  while (!Finished()) {
    StepReport step;
    try {
      step = Step();
    } catch (const Error& error) {
      SaveBeforeFailure(error);
      throw;
    }
    observer_.OnStep(step);
    if (const std::optional<StopReason> reason = EndStep(step.result.updated)) return *reason;
  }
  return StopReason::kDone;
}

void Trainer::SaveBeforeFailure(const Error& error) noexcept {
  // State that is not finite is no use, and that of a step which has ended is not counted yet.
  const bool lost = error.code() == ErrorCode::kDiverged || !session_.StateIsWhole() || session_.PartsPending();
  if (!options_.saves_on_failure || lost || session_.batch() == 0) return;
  try {
    observer_.OnSave(SaveReason::kFailure);
  } catch (const std::exception&) {
    // The run ends for the reason that came first.
  }
}

std::optional<StopReason> Trainer::EndStep(bool updated) {
  const int64_t epoch = (session_.batch() - 1) / batches_per_epoch();
  const bool epoch_ended = session_.batch() % batches_per_epoch() == 0;
  const bool last = Finished();
  // If the gradients of an update are held in parts by several devices, the state is saved only at an update. An epoch ends with one,
  // except with plans of earlier releases (UpdateRuleOf). There the parts are joined whether or not the state is saved, so a resumed run
  // has the same bits as one that was not stopped.
  if (epoch_ended) session_.JoinParts();
  const bool whole = !session_.PartsPending();
  const bool evaluates = eval_.rows() > 0 && options_.evaluate.unit != Interval::Unit::kNever;
  evaluation_due_ = evaluates && (evaluation_due_ || last || IsDue(options_.evaluate, updated));
  bool better = false;
  if (evaluation_due_) {
    const std::optional<bool> compared = EvaluateAndCompare(epoch, options_.stops_evaluations && whole);
    if (!compared) {
      if ((epoch_ended || last) && options_.reports_stopped_epochs) EndEpoch(epoch);
      Save(SaveReason::kStopRequested);
      return StopReason::kRequested;
    }
    better = *compared;
    evaluation_due_ = false;
  }
  if (epoch_ended || last) EndEpoch(epoch);
  if (better) AskToSave(SaveReason::kBest);
  const bool enough = IsStagnant();
  stop_ |= options_.stop_requested && options_.stop_requested();
  if (last || enough) {
    Save(SaveReason::kEnd);
    return last ? StopReason::kDone : StopReason::kNoImprovement;
  }
  if (stop_ && whole) {
    Save(SaveReason::kStopRequested);
    return StopReason::kRequested;
  }
  const bool agreed = options_.save.unit == Interval::Unit::kSeconds && options_.save_is_due;
  save_is_due_ |= agreed ? options_.save_is_due() : IsDue(options_.save, updated);
  if (save_is_due_ && whole) Save(SaveReason::kInterval);
  return std::nullopt;
}

const Feeds& Trainer::FeedsOf(int64_t index) {
  session_.FinishPrefetch();
  if (ahead_ == index) {
    feeds_ = std::move(prefetched_feeds_);
  } else {
    feeds_ = batches_->Get(index - batches_first_);
  }
  ahead_ = -1;
  return feeds_;
}

// Runs on another thread while no one else requests batches.
const Feeds* Trainer::Prefetch(int64_t index) {
  if (index - batches_first_ >= batches_->count()) return nullptr;
  try {
    prefetched_feeds_ = batches_->Get(index - batches_first_);
  } catch (const std::exception&) {
    return nullptr;
  }
  ahead_ = index;
  return &prefetched_feeds_;
}

void Trainer::StartEpoch(int64_t epoch) {
  session_.DropPrefetch();
  ahead_ = -1;
  batches_ = nullptr;
  order_ = options_.in_order ? RowsInOrder(train_.rows())
                             : ShuffledRows(train_.rows(), static_cast<uint64_t>(session_.seed()), static_cast<uint64_t>(epoch));
  order_epoch_ = epoch;
  if (options_.shared == nullptr) StartClock();
}

void Trainer::StartClock() {
  epoch_started_ = Now();
  epoch_waited_ = 0;
  epoch_rows_ = 0;
}

void Trainer::OpenBatches(int64_t index) {
  session_.DropPrefetch();
  ahead_ = -1;
  std::span<const int64_t> rows = order_;
  batches_first_ = 0;
  // Rows in memory can be accessed in any order. Rows from a source are made ahead, only by the process that needs them.
  if (options_.shared != nullptr && !train_.lazy_columns().empty()) {
    batches_first_ = index;
    const int64_t first = index * options_.batch, ours = (claimed_end_ - order_epoch_ * batches_per_epoch() - index) * options_.batch;
    rows = rows.subspan(static_cast<size_t>(first), static_cast<size_t>(std::min(ours, train_.rows() - first)));
  }
  const PhiloxKey draw = RowDraw(static_cast<uint64_t>(session_.seed()), static_cast<uint64_t>(order_epoch_));
  const EntryKind kind = session_.plan().accumulate > 1 ? EntryKind::kAccumulate : EntryKind::kStep;
  batches_ = std::make_unique<Batches>(train_, rows, options_.batch,
                                       BatchesOptions{.draw = draw,
                                                      .reads = RowsReadBy(session_, kind, train_, options_),
                                                      .kept = session_.copies_inputs() ? 2 : 1,
                                                      .axes = FeedAxes(session_.plan()),
                                                      .cores = session_.host_threads()});
}

StepReport Trainer::Step() {
  const int64_t epoch = session_.batch() / batches_per_epoch(), index = session_.batch() % batches_per_epoch();
  if (epoch != order_epoch_) StartEpoch(epoch);
  if (batches_ == nullptr || index < batches_first_ || index - batches_first_ >= batches_->count()) OpenBatches(index);
  StepReport report;
  report.asked = Now();
  const Feeds& feeds = FeedsOf(index);
  report.began = Now();
  epoch_waited_ += report.began - report.asked;
  report.rows = batches_->size(index - batches_first_);
  StepOrSkip(feeds, report);
  report.ended = Now();
  report.epoch = epoch;
  report.epochs_done = static_cast<double>(session_.batch()) / static_cast<double>(batches_per_epoch());
  report.total_batches = total_batches();
  if (!report.skipped) {
    terms_.resize(report.losses.size() - 1);
    loss_.Add(report.losses[0].value, report.losses[0].weight);
    for (size_t i = 0; i < terms_.size(); ++i) terms_[i].Add(report.losses[i + 1].value, report.losses[i + 1].weight);
  }
  epoch_rows_ += report.rows;
  report.samples_per_s = static_cast<double>(epoch_rows_) / std::max(Now() - epoch_started_, 1e-9);
  last_lr_ = report.result.lr;
  return report;
}

double Trainer::SharesOfUpdate(int64_t rows) const {
  const Plan& plan = session_.plan();
  const auto loss = plan.properties.find(kUpdateLoss);
  if (loss == plan.properties.end() || loss->second != kSumOfBatches) return 1;
  const int64_t first = std::max<int64_t>(session_.batch() % batches_per_epoch() - session_.accumulated(), 0) * options_.batch;
  const int64_t most = CheckedMul(plan.accumulate, options_.batch).value_or(train_.rows());
  const int64_t all = std::min(most, train_.rows() - first);
  return static_cast<double>(all) / static_cast<double>(rows);
}

void Trainer::StepOrSkip(const Feeds& feeds, StepReport& report) {
  if (options_.skip_non_finite) session_.KeepState();
  std::function<const Feeds*()> prefetch;
  // The index is found now: the other thread may run late, when the session has counted this batch.
  if (session_.copies_inputs()) prefetch = [this, next = session_.batch() % batches_per_epoch() + 1] { return Prefetch(next); };
  const double shares = SharesOfUpdate(report.rows);
  const int64_t index = session_.batch() % batches_per_epoch(), epoch = session_.batch() / batches_per_epoch();
  try {
    report.result = session_.Step(feeds, prefetch);
  } catch (const Error& error) {
    throw InBatch(error, "batch " + std::to_string(index + 1) + " of epoch " + std::to_string(epoch + 1));
  }
  for (double& term : report.result.terms) term *= shares;
  const double loss = report.result.loss *= shares;
  // All state is scanned only if a batch can be undone, or if training ends anyway.
  const std::string state = options_.skip_non_finite || !std::isfinite(loss) ? session_.NonFiniteState() : "";
  const EntryKind kind = session_.plan().accumulate > 1 ? EntryKind::kAccumulate : EntryKind::kStep;
  // Such a batch adds nothing to the gradients. A loss that is NaN for another reason, too, shows in the state.
  const bool left_out = std::isnan(loss) && state.empty() && LeavesOutLabels(session_, kind, feeds, report.rows);
  if ((std::isfinite(loss) || left_out) && state.empty()) {
    const double weight = options_.loss_weight ? options_.loss_weight(feeds) : static_cast<double>(report.rows);
    report.losses = WeighLosses(loss, report.result.terms, weight, left_out);
    report.result.loss = report.losses[0].value;
    skipped_in_a_row_ = 0;
    return;
  }
  const std::string origin = session_.NonFiniteOrigin(state);
  const std::string after = state.empty() ? "" : "not finite after it: '" + Escaped(state) + "'";
  std::string message = "the loss is " + (std::isnan(loss) ? "nan" : NumberText(loss)) + " at step " + std::to_string(report.result.step) +
                        ", batch " + std::to_string(report.result.batch);
  const std::string where = origin + (origin.empty() || after.empty() ? "" : "; ") + after;
  if (!options_.skip_non_finite) throw Error(ErrorCode::kDiverged, message, where, HelpForDiverged(train_));
  if (++skipped_in_a_row_ == kMaxSkippedInARow) {
    message += ", the last of " + std::to_string(skipped_in_a_row_) + " batches in a row";
    throw Error(ErrorCode::kDiverged, message, where, HelpForDiverged(train_));
  }
  session_.UndoStep();
  report.result = session_.SkipBatch(/*none_left=*/skipped_in_a_row_ > session_.accumulated());
  report.result.loss = loss;
  report.skipped = true;
  ++skipped_;
}

bool Trainer::IsDue(const Interval& interval, bool updated) const {
  switch (interval.unit) {
    case Interval::Unit::kNever: return false;
    case Interval::Unit::kEpochs:
      return session_.batch() % batches_per_epoch() == 0 && session_.batch() / batches_per_epoch() % interval.count == 0;
    case Interval::Unit::kUpdates: return updated && session_.step() % interval.count == 0;
    case Interval::Unit::kSeconds: return Now() - saved_at_ >= static_cast<double>(interval.count);
  }
  return false;
}

std::optional<bool> Trainer::EvaluateAndCompare(int64_t epoch, bool may_stop) {
  const double start = Now();
  observer_.OnEvaluationStart();
  EvaluationReport report{.step = judged().step(),
                          .epoch = epoch,
                          .epochs_done = static_cast<double>(judged().batch()) / static_cast<double>(batches_per_epoch()),
                          .values = {}};
  try {
    report.values = EvaluateOver(judged(), eval_, options_, may_stop ? options_.stop_requested : nullptr);
  } catch (const Error& error) {
    if (options_.shared == nullptr) SaveBeforeFailure(error);
    throw;
  }
  report.seconds = Now() - start;
  // Evaluation does not count towards the epoch's time, unless other processes train meanwhile.
  if (options_.shared == nullptr) epoch_started_ += report.seconds;
  if (report.values.empty()) return std::nullopt;
  const auto watched = report.values.find(options_.watch.name);
  if (watched == report.values.end()) {
    std::string known;
    for (const auto& [name, value] : report.values) known += (known.empty() ? "eval/" : ", eval/") + name;
    throw Error(ErrorCode::kConfig, "'" + Escaped(options_.watch.name) + "' is not measured, so it cannot select the best model", "",
                "expected one of: " + known);
  }
  const double value = watched->second;
  report.best = std::isfinite(value) && (best_step_ < 0 || (options_.watch.larger ? value > best_ : value < best_));
  if (report.best) {
    best_ = value;
    best_step_ = judged().step();
  }
  // A loss or an error is NaN if the model diverges, which is no progress.
  report.undefined = std::isnan(value) && LargerIsBetter(options_.watch.name);
  if (!report.undefined) stagnant_evaluations_ = report.best ? 0 : stagnant_evaluations_ + 1;
  if (plateau_ && !report.undefined) {
    const double before = plateau_->lr();
    session_.set_learning_rate(plateau_->Step(value));
    if (options_.shared != nullptr) options_.shared->set_learning_rate(plateau_->lr());
    if (plateau_->lr() != before) report.lr = plateau_->lr();
  }
  last_eval_ = report.values;
  last_eval_batch_ = judged().batch();
  observer_.OnEvaluation(report);
  return report.best;
}

void Trainer::EndEpoch(int64_t epoch, const SharedCounts& counts) {
  const double seconds = std::max(Now() - epoch_started_, 1e-9);
  if (options_.shared != nullptr) epoch_rows_ = counts.rows - epoch_base_.rows;
  const WeightedMean loss = options_.shared == nullptr ? loss_ : LossSince(counts);
  // Other processes may have finished this epoch while the end of the one before it was reported, which then has its batches.
  if (loss.weight > 0 || options_.shared == nullptr) epoch_loss_ = loss.value();
  EpochReport report{.epoch = epoch + 1,
                     .step = judged().step(),
                     .train_loss = epoch_loss_,
                     .lr = last_lr_,
                     .seconds = seconds,
                     .samples_per_s = static_cast<double>(epoch_rows_) / seconds,
                     .waited_seconds = epoch_waited_,
                     .memory = session_.device_memory()};
  for (size_t i = 0; options_.shared == nullptr && i < terms_.size(); ++i)
    report.terms.emplace(session_.plan().loss_terms[i], terms_[i].value());
  terms_.clear();
  if (last_eval_batch_ == judged().batch()) report.eval = last_eval_;
  waited_seconds_ += epoch_waited_;
  loss_ = {};
  if (options_.shared != nullptr) {
    epoch_base_ = counts;
    StartClock();
  }
  observer_.OnEpoch(report);
}

WeightedMean Trainer::EpochLoss() const { return options_.shared == nullptr ? loss_ : LossSince(options_.shared->counts()); }

WeightedMean Trainer::LossSince(const SharedCounts& counts) const {
  return {counts.loss_sum - epoch_base_.loss_sum, counts.loss_weight - epoch_base_.loss_weight};
}

void Trainer::Save(SaveReason reason) {
  saved_at_ = Now();
  save_is_due_ = false;
  AskToSave(reason);
}

void Trainer::AskToSave(SaveReason reason) {
  try {
    observer_.OnSave(reason);
  } catch (const Error& error) {
    // A checkpoint of state that is not finite is refused, perhaps before a loss shows it.
    const std::string origin = error.code() == ErrorCode::kDiverged ? session_.OwnNonFiniteOrigin() : "";
    if (origin.empty()) throw;
    throw Error(error.code(), error.message(), origin + (error.where().empty() ? "" : "; " + error.where()), error.help());
  }
}

std::string Trainer::state() const {
  const WeightedMean loss = EpochLoss();
  std::vector<double> sums, weights;
  for (const WeightedMean& term : terms_) {
    sums.push_back(term.sum);
    weights.push_back(term.weight);
  }
  nlohmann::json kept{{"lr", session_.plan().schedule.lr},
                      {"loss_sum", loss.sum},
                      {"loss_weight", loss.weight},
                      {"terms", sums},
                      {"term_weights", weights},
                      {"watch", options_.watch.ToString()},
                      {"best", best_},
                      {"best_step", best_step_},
                      {"not_better", stagnant_evaluations_},
                      {"skipped", skipped_},
                      {"in_a_row", skipped_in_a_row_},
                      {"plateau", plateau_ ? plateau_->state() : ""},
                      {"last_lr", last_lr_},
                      {"evaluation_due", evaluation_due_}};
  if (own_updates_ >= 0) kept["own_updates"] = own_updates_;
  return kept.dump();
}

void Trainer::set_state(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    loss_ = {json.at("loss_sum").get<double>(), json.at("loss_weight").get<double>()};
    // Missing in checkpoints of older releases, or with one weight for all; and those of a loss with other terms mean nothing.
    const std::vector<double> sums = json.value("terms", std::vector<double>());
    const std::vector<double> weights = json.value("term_weights", std::vector<double>(sums.size(), json.value("term_weight", 0.0)));
    terms_.clear();
    const bool same = sums.size() == session_.plan().loss_terms.size() && weights.size() == sums.size();
    for (size_t i = 0; same && i < sums.size(); ++i) terms_.push_back({sums[i], weights[i]});
    best_ = json.at("best").get<double>();
    best_step_ = json.at("best_step").get<int64_t>();
    stagnant_evaluations_ = json.at("not_better").get<int64_t>();
    skipped_ = json.at("skipped").get<int64_t>();
    skipped_in_a_row_ = json.at("in_a_row").get<int64_t>();
    if (options_.shared != nullptr) own_updates_ = json.value("own_updates", int64_t{-1});
    // Missing in checkpoints of older releases, where evaluations were not interrupted.
    last_lr_ = json.value("last_lr", 0.0);
    // Processes that train one set of parameters do not interrupt evaluations.
    evaluation_due_ = options_.shared == nullptr && json.value("evaluation_due", false);
    // Missing in checkpoints of older releases, and empty if the run had none.
    const std::string plateau = json.value("plateau", "");
    if (plateau_ && !plateau.empty()) {
      plateau_->set_state(plateau);
      // A rate that the run was given since replaces the reduced one.
      const double lr = session_.plan().schedule.lr;
      if (json.value("lr", lr) != lr) plateau_->set_lr(lr);
      session_.set_learning_rate(plateau_->lr());
    } else if (!plateau.empty()) {
      session_.set_learning_rate(-1);  // of the schedule
    }
    // Missing in checkpoints of older releases.
    const std::string watched = json.value("watch", options_.watch.ToString());
    if (watched == options_.watch.ToString()) return;
    formerly_watched_ = watched;
    best_ = 0;
    best_step_ = -1;
    stagnant_evaluations_ = 0;
    if (plateau_) plateau_->ForgetValues();
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kCheckpoint, "cannot read the saved state of the trainer: " + Escaped(text));
  }
}

}  // namespace gradloom
