// What a run shows of itself beside its records, where it is asked to: a trace, a profile, numbers for Prometheus.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/session/trainer.h"
#include "tools/config/configuration.h"
#include "tools/run/metrics_server.h"
#include "tools/run/run_metrics.h"
#include "tools/run/run_profile.h"
#include "tools/run/run_trace.h"

namespace gradloom {

class RunInstruments {
 public:
  // Made before the run's folder is, so that a wrong option leaves none behind: its name would be taken for the command put right.
  // `session` must outlive it; `plan`: as it is on the disk. Throws Error(kConfig) for options that cannot be, Error(kResource) for a port
  // that is taken.
  RunInstruments(const Configuration& configuration, Session& session, const Plan& plan);

  // When the session has the state that it goes on from. `run`: the folder; `model`: its path. Throws Error(kResource).
  void Begin(const Configuration& configuration, Session& session, const std::string& run, const std::string& model);

  // Once begun: who is told before those whose work is measured, who is told like any other, and who is told after them.
  std::vector<TrainerObserver*> first();
  void AddTo(std::vector<TrainerObserver*>& listening);
  void AddLast(std::vector<TrainerObserver*>& listening);

  // "http://127.0.0.1:9100/metrics"; "" where nothing is served.
  std::string page() const;

  // Writes what the run ended before. Throws Error(kResource).
  void Finish();

 private:
  std::unique_ptr<RunTrace> trace_;
  std::optional<RunProfile> profile_;
  std::optional<RunMetrics> metrics_;
  std::optional<MetricsServer> server_;  // last: it ends before what it shows
};

}  // namespace gradloom
