// What a run did, for the Perfetto viewer (ui.perfetto.dev) and its trace processor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/exec/executor.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// A process a device, a track a stream with its instructions, one for the host's thread, arrows for events and for what devices do
// together, and a counter of the transient bytes in use, by the plan's lives of buffers.
class PerfettoTrace {
 public:
  // The plan must outlive the trace. `process`: the rank, in its job, of the process whose thread is the host's.
  explicit PerfettoTrace(const Plan& plan, int process = 0);
  ~PerfettoTrace();

  // One run of an entry.
  void Add(int entry, std::span<const TimedInstruction> times, int64_t step);

  // What the host's thread did, by the steady clock. Slices do not overlap.
  void AddHost(const std::string& name, int64_t begin_ns, int64_t end_ns, int64_t step);

  // The file's content.
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
