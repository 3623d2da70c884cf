// CUDA's runtime library without a GPU, for tests: the functions that Gradloom calls, over host memory.
//
// Streams are queues. Nothing runs until somebody waits. Then work is taken from the heads of the queues in a random order that respects
// only streams and events, so a missing event shows as wrong results. New memory is poisoned. Calls that CUDA refuses during a graph
// capture are refused here as well, and so are launches on a stream of a device other than the current one, and copies between the host and
// a device on a stream of another device. An error that a call has returned stays until somebody asks for it, and then fails the next
// launch, because a launch on a GPU is checked by asking for the last error.
#pragma once

#include <driver_types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gradloom::emulated {

struct Options {
  int devices = 1;
  int older = 0;                            // this many of the devices, the last ones, have compute capability 8.0; the others have 9.0
  int64_t memory_bytes = int64_t{8} << 30;  // per device
  int64_t communicator_bytes = 0;           // free on a device when a communicator is made there, which fails with less
  uint64_t seed = 1;                        // determines the order in which streams advance
  bool pinning_fails = false;
  bool peers = true;     // devices can read each other's memory once this is enabled
  int queue_limit = 0;   // a launch waits on the host until its stream has fewer items of work than this; 0: it never waits
  int kernel_us = 0;     // additional time of each kernel
  int fails_after = -1;  // the n-th call from now that enqueues work fails with cudaErrorLaunchFailure; -1 for none
  // This device fails after that many items of its work: nothing runs on it any more, calls that concern it return an error, and what waits
  // for it on other devices waits forever, as do calls that wait for those. -1: none.
  int lost_device = -1;
  int lost_after = 0;
};

// Starts over. Device memory, streams or events that still exist are a leak of the test, which fails.
void Reset(const Options& options);

// The calls since the last Reset that enqueued work, in order: "launch", "copy", "record e3", "wait e3", and their streams. A graph launch
// is one entry; the calls that were captured come before it.
struct Call {
  std::string what;
  int stream = 0;  // the stream's number in the order of creation; 0 for the default stream
  bool captured = false;
};
const std::vector<Call>& Calls();

// The number of items of work that have run on a device since the last Reset.
int WorkDone(int device);
// Whether Options::lost_device has failed.
bool DeviceLost();

// Enqueues work that starts when all these streams have reached it; no stream proceeds before it is complete. `run` returns whether it is
// complete and is called until then, unless whoever waits for a stream gives up. Once `ended` returns true, no stream waits for the others
// any more.
cudaError_t EnqueueTogether(const std::string& what, std::span<cudaStream_t const> streams, std::function<bool()> run,
                            std::function<bool()> ended);

// The current device's part of making a communicator, which allocates memory: not during a capture.
cudaError_t AllocateForCommunicator();

// During a capture, keeps `object` alive until the captured graph is destroyed and none of its launches is under way.
void KeepByGraph(std::shared_ptr<void> object);

// Runs the work that can run now.
void AdvanceStreams();

// Sets whether cuBLASLt has an algorithm for any product.
void SetBlasHasAlgorithms(bool all);
// Sets whether it has one for products with an epilogue other than a bias.
void SetBlasHasEpilogues(bool all);
// Sets the number of algorithms for each product, and which of them is the fastest, counted from 1. Those before it take a millisecond.
// BlasQueries returns how often the heuristics were queried since, and BlasRan which algorithms have run.
void SetBlasAlgorithms(int count, int fastest);
int BlasQueries();
std::set<int> BlasRan();

// The time that a query of NCCL's errors takes.
void SetNcclQueryTime(std::chrono::microseconds time);

// The pairs (reader, owner) for which peer access was enabled since the last Reset.
std::set<std::pair<int, int>> EnabledPeers();

// The devices on which this process has made a context since the last Reset. On a GPU each takes several hundred megabytes.
std::set<int> Contexts();

}  // namespace gradloom::emulated
