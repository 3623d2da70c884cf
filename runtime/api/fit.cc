// A whole training run through the C table.
#include <algorithm>
#include <exception>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "runtime/api/guard.h"
#include "runtime/api/table.h"
#include "runtime/base/listing.h"
#include "runtime/session/metrics.h"
#include "runtime/session/trainer.h"

namespace gradloom::api {
namespace {

// Throws Error(kConfig).
PlateauOptions PlateauOf(const GradloomFitOptions& given, bool larger) {
  if (given.plateau_patience < 0 || given.plateau_cooldown < 0 || !(given.plateau_threshold >= 0) || !(given.plateau_min_lr >= 0))
    throw Error(ErrorCode::kConfig, "the plateau's patience, threshold, cooldown and least learning rate must be at least 0");
  return {.larger = larger,
          .factor = given.plateau_factor,
          .patience = given.plateau_patience,
          .threshold = given.plateau_threshold,
          .cooldown = given.plateau_cooldown,
          .min_lr = given.plateau_min_lr};
}

// Those that a metric does not name are those of the loss with its target, or of the first one.
void ReadOperands(const Plan& plan, MetricSpec& spec) {
  const LossInfo* about = nullptr;
  for (const LossInfo& loss : plan.losses) {
    if (!loss.output.empty() && !loss.target.empty() && (spec.target.empty() ? about == nullptr : loss.target == spec.target))
      about = &loss;
  }
  if (about != nullptr && spec.output.empty()) spec.output = about->output;
  if (about != nullptr && spec.target.empty()) spec.target = about->target;
  if (!spec.output.empty() && !spec.target.empty()) return;
  throw Error(ErrorCode::kConfig,
              "metric " + Escaped(spec.name) + " needs an output and a target, because the plan's loss names none that it compares", "",
              "write " + Escaped(spec.name) + "(OUTPUT, TARGET)");
}

TrainerOptions OptionsFor(const GradloomFitOptions& given, const Plan& plan, int64_t rows) {
  TrainerOptions options;
  if (given.epochs < 0 || given.updates < 0 || given.batch < 0 || given.patience < 0)
    throw Error(ErrorCode::kConfig, "epochs, updates, batch and patience must be at least 0");
  if (given.epochs > 0) options.epochs = given.epochs;
  options.updates = given.updates;
  if (given.batch > 0) options.batch = given.batch;
  options.batch = std::min(options.batch, std::max<int64_t>(rows, 1));
  // A plan may evaluate in batches of another size (eval.batch).
  const auto evaluates = [](const Entry& entry) { return entry.kind == EntryKind::kEval; };
  const auto eval = std::find_if(plan.entries.begin(), plan.entries.end(), evaluates);
  const auto same = [&](const Entry& entry) { return evaluates(entry) && entry.batch == options.batch; };
  if (eval != plan.entries.end() && std::none_of(plan.entries.begin(), plan.entries.end(), same)) options.eval_batch = eval->batch;
  options.patience = given.patience;
  if (given.evaluate_every != nullptr) options.evaluate = Interval::Parse(given.evaluate_every, "evaluate_every");
  Array(given.metrics, given.num_metrics, "the array of metrics");
  for (size_t i = 0; i < given.num_metrics; ++i) {
    MetricSpec spec = MetricSpec::Parse(TextOf(given.metrics[i], "a metric"));
    Metric::Make(spec);
    ReadOperands(plan, spec);
    options.metrics.push_back(std::move(spec));
  }
  DisambiguateNames(options.metrics);
  for (MetricSpec& spec : options.metrics) spec.ReadLikeLoss(plan.losses);
  if (given.watch != nullptr) options.watch = Watch::Parse(given.watch);
  if (given.plateau_factor != 0) options.plateau = PlateauOf(given, options.watch.larger);
  options.skip_non_finite = given.skip_non_finite != 0;
  options.in_order = given.in_order != 0;
  return options;
}

// Throws Error(kConfig) for options that need an evaluation if there is none, which would do nothing.
void CheckEvaluates(const GradloomFitOptions& given, const TrainerOptions& options, const GradloomDataset* eval) {
  const bool data = eval != nullptr && eval->data->rows() > 0;
  if (data && options.evaluate.unit != Interval::Unit::kNever) return;
  const std::pair<const char*, bool> asked[] = {{"patience", given.patience > 0},
                                                {"a value to watch", given.watch != nullptr},
                                                {"a learning rate that is reduced on a plateau", options.plateau.has_value()},
                                                {"a metric", !options.metrics.empty() && !data}};
  for (const auto& [what, is_asked] : asked) {
    if (!is_asked) continue;
    throw Error(ErrorCode::kConfig, std::string(what) + (data ? " needs evaluations, but they are never due" : " needs evaluation data"),
                "", data ? "omit one of them" : "pass a part of the data as evaluation data");
  }
}

// Throws Error(kConfig, kData) for an evaluation that could not be made at the end of the first epoch: of outputs, targets or values that
// do not exist, or without data for an input.
void CheckEvaluation(const TrainerOptions& options, const Plan& plan, const Dataset& eval) {
  const auto entry = std::find_if(plan.entries.begin(), plan.entries.end(), [](const Entry& e) { return e.kind == EntryKind::kEval; });
  if (entry == plan.entries.end()) return;  // the trainer says so before it trains, or the first evaluation compiles one
  const auto refuse = [](const std::string& what, const Listing& known) {
    throw Error(ErrorCode::kConfig, what, "", "expected one of: " + known.text());
  };
  Listing outputs(100), columns(100), values(100);
  std::set<std::string> measured{"loss"};
  values.Add("eval/loss");
  for (size_t i = 0; i < entry->fetches.size(); ++i) {
    if (!IsOnlyExtent(*entry, i)) outputs.Add(Escaped(entry->fetches[i].name));
  }
  for (const Feed& feed : entry->feeds) {
    if (!eval.has(feed.name))
      throw Error(ErrorCode::kData, "the evaluation data has no column '" + Escaped(feed.name) + "', which the model or its loss needs");
  }
  for (const auto& [name, column] : eval.columns()) columns.Add(Escaped(name));
  for (const std::string& term : plan.loss_terms) {
    measured.insert(term);
    values.Add("eval/" + Escaped(term));
  }
  for (const MetricSpec& spec : options.metrics) {
    const auto fetches = [&](const Fetch& fetch) { return fetch.name == spec.output; };
    if (std::none_of(entry->fetches.begin(), entry->fetches.end(), fetches))
      refuse("metric " + Escaped(spec.name) + ": unknown output '" + Escaped(spec.output) + "'", outputs);
    if (const auto column = eval.columns().find(spec.target); column != eval.columns().end()) spec.CheckTargets(column->second.view());
    if (!eval.has(spec.target)) refuse("metric " + Escaped(spec.name) + ": unknown target '" + Escaped(spec.target) + "'", columns);
    measured.insert(spec.shown());
    values.Add("eval/" + Escaped(spec.shown()));
  }
  // Some metrics have a value for each class, which the data decides: "iou/3".
  const auto is_watched = [&](const std::string& name) { return options.watch.name == name || options.watch.name.starts_with(name + "/"); };
  if (std::none_of(measured.begin(), measured.end(), is_watched))
    refuse("'" + Escaped(options.watch.name) + "' is not measured, so it cannot select the best model", values);
}

// Passes reports to the callbacks; a callback's return value can end the run.
class CallbackObserver : public TrainerObserver {
 public:
  explicit CallbackObserver(const GradloomCallbacks& callbacks) : callbacks_(callbacks) {}

  // An evaluation is not left before its end because of an earlier callback.
  bool stopped() const { return stopped_ && !evaluating_; }
  double train_loss() const { return train_loss_; }

  void OnStep(const StepReport& report) override {
    if (callbacks_.on_step == nullptr) return;
    GradloomStepResult result = ResultOf(report.result);
    result.size = sizeof result;
    Tell("on_step", callbacks_.on_step, result);
  }

  void OnEvaluationStart() override { evaluating_ = true; }

  void OnEvaluation(const EvaluationReport& report) override {
    evaluating_ = false;
    if (callbacks_.on_evaluation == nullptr) return;
    std::vector<const char*> names;
    std::vector<double> values;
    for (const auto& [name, value] : report.values) {
      names.push_back(name.c_str());
      values.push_back(value);
    }
    const GradloomEvaluation evaluation{names.data(), values.data(), names.size(), report.step, report.epoch, report.best ? 1 : 0, 0};
    Tell("on_evaluation", callbacks_.on_evaluation, evaluation);
  }

  void OnEpoch(const EpochReport& report) override {
    train_loss_ = report.train_loss;
    if (callbacks_.on_epoch == nullptr) return;
    const GradloomEpoch epoch{report.epoch, report.step, report.train_loss, report.lr, report.seconds, report.samples_per_s};
    Tell("on_epoch", callbacks_.on_epoch, epoch);
  }

 private:
  // An exception of a callback ends the run like an error of it, and is not taken for one of Gradloom's own.
  template <typename Report>
  void Tell(const char* name, int32_t (*callback)(void* user, const Report* report), const Report& report) {
    std::string thrown;
    try {
      stopped_ |= callback(callbacks_.user, &report) != 0;
      return;
    } catch (const std::exception& error) {
      thrown = error.what();
    } catch (...) {
      thrown = "an exception that is not a std::exception";
    }
    throw Error(ErrorCode::kConfig, std::string("the callback ") + name + " of Fit has thrown: " + Escaped(thrown), "",
                "catch exceptions in the callback, and return 1 to end the run");
  }

  GradloomCallbacks callbacks_;
  bool stopped_ = false, evaluating_ = false;
  double train_loss_ = std::numeric_limits<double>::quiet_NaN();
};

// While this object lives, callbacks cannot train the session that is being fitted.
class FitGuard {
 public:
  explicit FitGuard(GradloomSession& session) : session_(session) {
    session_.fitting = true;
    session_.stop_fit = false;
  }
  ~FitGuard() { session_.fitting = false; }

 private:
  GradloomSession& session_;
};

int32_t StoppedBy(StopReason reason) {
  switch (reason) {
    case StopReason::kDone: return 0;
    case StopReason::kRequested: return 1;
    case StopReason::kNoImprovement: return 2;
  }
  return 0;
}

GradloomStatus* Fit(GradloomSession* session, const GradloomDataset* train, const GradloomDataset* eval, const GradloomFitOptions* options,
                    const GradloomCallbacks* callbacks, GradloomFitResult* result) {
  return Guarded([&] {
    const Call call(session);
    call.CheckNotFitting();
    if (call.handle().waited_for) throw Error(ErrorCode::kConfig, "an asynchronous step has not been waited for", "", "call Wait first");
    CheckResult(result);
    // A callback, or another thread, may release the handles.
    const auto train_data = NotNull(train, "the training data").data;
    const auto eval_data = eval == nullptr ? nullptr : eval->data;
    const Dataset& data = *train_data;
    const Dataset none;
    CallbackObserver observer(OptionsOf(callbacks));
    TrainerOptions made = OptionsFor(OptionsOf(options), call->plan(), data.rows());
    CheckEvaluates(OptionsOf(options), made, eval);
    if (eval_data != nullptr && eval_data->rows() > 0 && made.evaluate.unit != Interval::Unit::kNever)
      CheckEvaluation(made, call->plan(), *eval_data);
    made.stop_requested = [&] { return observer.stopped() || call.handle().stop_fit; };
    made.stops_evaluations = made.reports_stopped_epochs = true;
    call.handle().shapes.clear();
    const FitGuard fitting(call.handle());
    made.loss_weight = LossWeightOf(call->plan().losses, data, eval_data.get());
    // A plateau begins at the plan's rate, not at one to which an earlier plateau has reduced it.
    if (made.plateau) call->set_learning_rate(-1);
    const int64_t accumulated = call->accumulated();
    Trainer trainer(*call, data, eval_data == nullptr ? none : *eval_data, std::move(made), observer);
    // Also of steps that the program has made itself, which the position in an epoch does not tell.
    call->set_accumulated(accumulated);
    const StopReason reason = trainer.Run();
    GradloomFitResult given{};
    given.train_loss = observer.train_loss();
    given.best = trainer.has_best() ? trainer.best() : std::numeric_limits<double>::quiet_NaN();
    given.best_step = trainer.has_best() ? trainer.best_step() : -1;
    given.step = call->step();
    given.stopped = StoppedBy(reason);
    WriteResult(given, result);
  });
}

// Without the lock, which Fit holds.
GradloomStatus* StopFit(GradloomSession* session) {
  return Guarded([&] {
    GradloomSession& handle = InItsProcess(session);
    const Begun begun(handle);
    handle.stop_fit = true;
  });
}

}  // namespace

void AddFit(GradloomApi& api) {
  api.Fit = Fit;
  api.StopFit = StopFit;
}

}  // namespace gradloom::api
