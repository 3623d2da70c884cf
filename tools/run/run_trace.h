// Traces some steps of a run.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/session/trainer.h"
#include "tools/report/perfetto_trace.h"

namespace gradloom {

enum class TraceFormat : uint8_t { kPerfetto, kChromeJson };

// Steps [first, last] of a run, counted from 1: what every instruction of every stream did when, written as a Perfetto trace once they
// are over.
class RunTrace : public TrainerObserver {
 public:
  // `session` must outlive the trace. Throws Error(kConfig) for steps that are no range "3:5" or number.
  RunTrace(Session& session, std::string path, const std::string& steps, TraceFormat format);

  void OnStep(const StepReport& report) override;

  // Writes what there is, where the run ended before the last of the steps. Throws Error(kResource).
  void Finish();

 private:
  Session& session_;
  const std::string path_;
  const TraceFormat format_;
  int64_t first_ = 0, last_ = 0;
  PerfettoTrace trace_;
  bool written_ = false;
};

}  // namespace gradloom
