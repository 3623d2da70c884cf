// A trace as JSON for chrome://tracing and other readers of Chrome's trace event format. Private to this directory.
#pragma once

#include <string>

namespace gradloom {

namespace perfetto {
class Trace;
}

// Converts a trace of PerfettoTrace: processes and threads for its tracks, a complete event for each slice, flow events for its arrows, and
// counters. Times are in microseconds.
std::string ChromeTraceOf(const perfetto::Trace& trace);

}  // namespace gradloom
