// A job of real processes on this machine, for tests.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/job_topology.h"

namespace gradloom {

// A TCP port that is free now.
int FreePort();

JobTopology TopologyOf(int rank, int world, int port);

// How a process ended: its exit code, or the number of the signal as a negative one; and what it wrote as its last words.
struct ForkedEnd {
  int code = 0;
  std::string words;
};

// Runs `body` in a process of its own for each rank and waits until all have ended; one that takes longer than `seconds` is killed. What
// body throws is printed, kept as words, and makes the code 1, or that of the class of an Error. The caller has no threads.
std::vector<ForkedEnd> RunForked(int world, const std::function<void(const JobTopology&)>& body, int seconds = 120);

// Words without an end of the process.
void Say(const std::string& words);

}  // namespace gradloom
