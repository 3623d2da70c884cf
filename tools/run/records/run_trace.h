// Traces some steps of a run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/session/trainer.h"
#include "tools/config/configuration.h"
#include "tools/report/perfetto_trace.h"

namespace gradloom {

enum class TraceFormat : uint8_t { kPerfetto, kChromeJson };

// Steps [first, last] of a run, counted from 1.
struct TracedSteps {
  int64_t first = 0, last = 0;

  // "3:5" or "3". Throws Error(kConfig).
  static TracedSteps Parse(const std::string& text);
};

// Records when each instruction of each stream ran, and what the host thread did: waits for data, steps, evaluations, saves, and writing
// their records. The trace is written when the steps are over. Must be called before the observers whose work it measures, and its
// `after()` observer after them.
class RunTrace : public TrainerObserver {
 public:
  // Makes the trace that the configuration requests; null if it requests none or the steps are over. Each process of a job has its own
  // file: rank 1 writes run.rank-1.pftrace next to run.pftrace. `session` must outlive the trace; `rank`: of this process in its job, 0
  // without a job. Throws Error(kConfig), and Error(kResource) if the file could not be written.
  static std::unique_ptr<RunTrace> Make(Session& session, const Configuration& configuration, int rank);

  RunTrace(Session& session, std::string path, TracedSteps steps, TraceFormat format, int rank);

  void OnStep(const StepReport& report) override;
  void OnEvaluation(const EvaluationReport& report) override;
  void OnSave(SaveReason reason) override;

  TrainerObserver& after() { return after_; }

  // Writes what was recorded if the run ended before the last of the steps. Throws Error(kResource).
  void Finish();

 private:
  class After : public TrainerObserver {
   public:
    explicit After(RunTrace& trace) : trace_(trace) {}
    void OnStep(const StepReport& report) override;
    void OnSave(SaveReason reason) override;

   private:
    RunTrace& trace_;
  };

  bool Traces() const { return !written_ && step_ >= steps_.first; }

  Session& session_;
  const std::string path_;
  const TracedSteps steps_;
  const TraceFormat format_;
  After after_{*this};
  int64_t step_ = 0, reported_ns_ = 0;  // the last step, and the time at which the current activity began
  PerfettoTrace trace_;
  bool written_ = false;
};

}  // namespace gradloom
