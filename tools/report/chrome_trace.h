// A trace as JSON for chrome://tracing and whatever else reads Chrome's trace events. Private to this directory.
#pragma once

#include <string>

namespace gradloom {

namespace perfetto {
class Trace;
}

// Of a trace as PerfettoTrace makes it: processes and threads for its tracks, a complete event for each slice, flow events for its arrows,
// counters. Times are microseconds.
std::string ChromeTraceOf(const perfetto::Trace& trace);

}  // namespace gradloom
