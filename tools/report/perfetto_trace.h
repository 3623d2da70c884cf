// What a run did, for the Perfetto viewer (ui.perfetto.dev) and its trace processor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/exec/executor.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// A process a device, a track a stream with its instructions, arrows for events and for what devices do together, and a counter
// of the transient bytes in use, by the plan's lives of buffers.
class PerfettoTrace {
 public:
  // The plan must outlive the trace.
  explicit PerfettoTrace(const Plan& plan);
  ~PerfettoTrace();

  // One run of an entry.
  void Add(int entry, std::span<const TimedInstruction> times, int64_t step);

  // The file's content.
  std::string Serialized() const;
  // The same as JSON for chrome://tracing.
  std::string ChromeJson() const;

 private:
  struct Content;
  const Plan& plan_;
  std::unique_ptr<Content> content_;
  uint64_t next_flow_ = 1;
};

}  // namespace gradloom
