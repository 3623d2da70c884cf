// Optional outputs of a run besides its records: a trace, a profile, and metrics for Prometheus.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/session/trainer.h"
#include "tools/config/configuration.h"
#include "tools/run/records/metrics_server.h"
#include "tools/run/records/run_metrics.h"
#include "tools/run/records/run_profile.h"
#include "tools/run/records/run_trace.h"
#include "tools/run/train/run_checkpoints.h"

namespace gradloom {

class RunInstruments {
 public:
  // Takes the port of the metrics. Created before anything is compiled, which may take minutes. Throws Error(kConfig) for invalid options,
  // Error(kResource) for a port that is in use.
  explicit RunInstruments(const Configuration& configuration);

  // Called before the run's folder is made, so that a wrong option does not leave a folder behind that blocks the name for the corrected
  // command. `session` must outlive this object; `plan`: as stored on disk. Throws Error(kConfig) for invalid options.
  void Measure(const Configuration& configuration, Session& session, const Plan& plan);

  // Call once the session has its initial or restored state. `run`: the folder; `model`: its path; `checkpoints`: borrowed. Throws
  // Error(kResource).
  void Begin(const Configuration& configuration, Session& session, const std::string& run, const std::string& model,
             const RunCheckpoints& checkpoints);

  // After Begin: observers that must be called before the measured ones, in any order, and after them.
  std::vector<TrainerObserver*> first();
  void AddTo(std::vector<TrainerObserver*>& listening);
  void AddLast(std::vector<TrainerObserver*>& listening);

  // "http://127.0.0.1:9100/metrics"; "" if nothing is served.
  std::string page() const;

  // Writes outputs that the run has not completed. Throws Error(kResource).
  void Finish();

 private:
  std::unique_ptr<RunTrace> trace_;
  std::optional<RunProfile> profile_;
  std::optional<RunMetrics> metrics_;
  std::optional<MetricsServer> server_;  // last member: it ends before what it serves
};

}  // namespace gradloom
