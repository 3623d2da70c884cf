// A trace of a run for the Perfetto viewer (ui.perfetto.dev) and its trace processor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/exec/executor.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// One process per device, one track per stream with its instructions, one track for the host thread, arrows for events and communication,
// and a counter of the transient bytes in use, according to the lifetimes of the plan's buffers.
class PerfettoTrace {
 public:
  // The plan must outlive the trace. `process`: the rank in its job of the process that the host thread belongs to.
  explicit PerfettoTrace(const Plan& plan, int process = 0);
  ~PerfettoTrace();

  // Adds one run of an entry.
  void Add(int entry, std::span<const TimedInstruction> times, int64_t step);

  // Adds work of the host thread, by the steady clock. Slices do not overlap.
  void AddHost(const std::string& name, int64_t begin_ns, int64_t end_ns, int64_t step);

  // The content of the file.
  std::string Serialized() const;
  // The same as JSON for chrome://tracing.
  std::string ChromeJson() const;

 private:
  struct Content;
  const Plan& plan_;
  uint64_t host_track_ = 0;
  std::unique_ptr<Content> content_;
  uint64_t next_flow_ = 1;
};

}  // namespace gradloom
