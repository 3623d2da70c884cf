// A job of real processes on this machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/job_topology.h"

namespace gradloom {

// A TCP port that is currently free.
int FreePort();

JobTopology TopologyOf(int rank, int world, int port);

// How a process ended: its exit code, or the negated number of the signal that ended it, and the last words it wrote.
struct ForkedEnd {
  int code = 0;
  std::string words;
};

// Runs `body` in a forked process for each rank and waits until all have ended. Processes that take longer than `seconds` are killed. An
// exception from `body` is printed, kept as words, and makes the exit code 1, or that of the class of an Error. The caller must be
// single-threaded.
std::vector<ForkedEnd> RunForked(int world, const std::function<void(const JobTopology&)>& body, int seconds = 120);

// Sets the last words without ending the process.
void Say(const std::string& words);

}  // namespace gradloom
