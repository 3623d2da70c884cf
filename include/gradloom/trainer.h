// A whole training run in one call.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradloom/dataset.h"
#include "gradloom/session.h"

namespace gradloom {
inline namespace v1 {

// Multiplies the learning rate by `factor` when the watched value makes no progress, as PyTorch's ReduceLROnPlateau does. Needs evaluation
// data and a plan without a schedule.
struct Plateau {
  double factor = 0.1;
  int64_t patience = 10;    // evaluations without progress that are tolerated
  double threshold = 1e-4;  // least progress that counts, as a share of the best value
  int64_t cooldown = 0;     // evaluations after a reduction that do not count
  double min_lr = 0;        // the learning rate is not reduced further
};

struct TrainerConfig {
  Dataset train;
  std::optional<Dataset> eval{};
  int64_t epochs = 1;
  int64_t updates = 0;  // above 0: total number of updates, whatever the number of epochs
  int64_t batch = 32;
  int64_t seed = 0;
  std::string evaluate_every = "1ep";  // or "500" updates
  std::vector<std::string> metrics{};  // "accuracy", of the loss's output and target, or "accuracy(logits, label)"
  std::string watch{};                 // the value that selects the best model: "eval/loss:min"; empty: the loss
  int64_t patience = 0;                // above 0: stop after this many evaluations in a row without improvement
  std::optional<Plateau> plateau{};
  // Leaves out batches whose loss is NaN or infinite, which costs a copy of all state per step; otherwise they end the run (E-DIVERGED).
  bool skip_non_finite = false;
  bool in_order = false;  // each epoch in the order of the data; otherwise in an order that depends on seed and epoch
};

struct Evaluation {
  int64_t step = 0, epoch = 0;
  std::map<std::string, double> values;  // "loss", its terms if there are several ("loss/box"), and the metrics
  bool best = false;                     // better than all previous evaluations
};

struct Epoch {
  int64_t epoch = 0, step = 0;  // epoch: from 1
  double train_loss = 0, lr = 0, seconds = 0, samples_per_second = 0;
};

// Each may be empty. They are called between two steps on the thread that called Fit. Returning false ends the run after this step. An
// exception ends the run, and Fit rethrows it.
struct Callbacks {
  std::function<bool(const StepResult&)> on_step{};
  std::function<bool(const Evaluation&)> on_evaluation{};
  std::function<bool(const Epoch&)> on_epoch{};
};

struct FitResult {
  double train_loss = 0;   // of the last epoch
  double best = 0;         // the watched value; NaN if nothing was evaluated
  int64_t best_step = -1;  // -1 if nothing was evaluated
  int64_t step = 0;
  bool stopped_by_callback = false, stopped_early = false;  // by a callback or Session::StopFit; without improvement
};

class Trainer {
 public:
  Trainer(const Plan& plan, const TrainerConfig& config) : Trainer(Session(plan, {.seed = config.seed}), config) {}
  // Takes over a session: Fit continues at its position. For one that was made from a checkpoint of a Trainer with the same configuration,
  // the steps have the bits of an uninterrupted run. Its seed counts, not that of the configuration. What Fit keeps besides the session
  // begins anew with each call: the best value, the evaluations without improvement, the plateau, and the mean loss of the epoch. With a
  // plateau, a session that continues begins at the learning rate of the plan.
  Trainer(Session session, TrainerConfig config) : config_(std::move(config)), session_(std::move(session)) {
    config_.train.Read(session_.plan());
    if (config_.eval) config_.eval->Read(session_.plan());
  }

  Session& session() { return session_; }

  FitResult Fit(const Callbacks& callbacks = {}) {
    // The table takes zeros for its defaults, and no factor for no plateau.
    if ((config_.epochs == 0 && config_.updates == 0) || config_.batch == 0 || (config_.plateau && config_.plateau->factor == 0))
      throw Error(GRADLOOM_E_CONFIG, "E-CONFIG", "epochs, batch and the factor of a plateau must not be 0");
    std::vector<const char*> metrics;
    for (const std::string& metric : config_.metrics) metrics.push_back(metric.c_str());
    auto options = internal::Sized<GradloomFitOptions>();
    options.epochs = config_.epochs;
    options.updates = config_.updates;
    options.batch = config_.batch;
    options.evaluate_every = config_.evaluate_every.c_str();
    options.metrics = metrics.data();
    options.num_metrics = metrics.size();
    options.watch = config_.watch.empty() ? nullptr : config_.watch.c_str();
    options.patience = config_.patience;
    if (config_.plateau) {
      options.plateau_factor = config_.plateau->factor;
      options.plateau_patience = config_.plateau->patience;
      options.plateau_threshold = config_.plateau->threshold;
      options.plateau_cooldown = config_.plateau->cooldown;
      options.plateau_min_lr = config_.plateau->min_lr;
    }
    options.skip_non_finite = config_.skip_non_finite ? 1 : 0;
    options.in_order = config_.in_order ? 1 : 0;
    Listener listener{callbacks, nullptr};
    auto table = internal::Sized<GradloomCallbacks>();
    table.user = &listener;
    table.on_step = [](void* user, const GradloomStepResult* r) {
      return Listener::Tell(user, [&](const Callbacks& c) { return !c.on_step || c.on_step(internal::ResultOf(*r)); });
    };
    table.on_evaluation = [](void* user, const GradloomEvaluation* e) {
      return Listener::Tell(user, [&](const Callbacks& c) {
        if (!c.on_evaluation) return true;
        Evaluation evaluation{e->step, e->epoch, {}, e->best != 0};
        for (size_t i = 0; i < e->count; ++i) evaluation.values.emplace(e->names[i], e->values[i]);
        return c.on_evaluation(evaluation);
      });
    };
    table.on_epoch = [](void* user, const GradloomEpoch* e) {
      return Listener::Tell(user, [&](const Callbacks& c) {
        return !c.on_epoch || c.on_epoch({e->epoch, e->step, e->train_loss, e->lr, e->seconds, e->samples_per_second});
      });
    };
    auto result = internal::Sized<GradloomFitResult>();
    GradloomStatus* const status =
        internal::Api().Fit(session_.c(), config_.train.c(), config_.eval ? config_.eval->c() : nullptr, &options, &table, &result);
    if (listener.thrown) {
      internal::Api().ReleaseStatus(status);
      std::rethrow_exception(listener.thrown);
    }
    internal::Check(status);
    return {result.train_loss, result.best, result.best_step, result.step, result.stopped == 1, result.stopped == 2};
  }

 private:
  // No exception may cross the table.
  struct Listener {
    const Callbacks& callbacks;
    std::exception_ptr thrown;

    template <typename Call>
    static int32_t Tell(void* user, Call call) noexcept {
      auto& listener = *static_cast<Listener*>(user);
      if (listener.thrown) return 1;  // the run ends after this step, which may still end an epoch
      try {
        return call(listener.callbacks) ? 0 : 1;
      } catch (...) {
        listener.thrown = std::current_exception();
        return 1;
      }
    }
  };

  TrainerConfig config_;
  Session session_;
};

}  // namespace v1
}  // namespace gradloom
