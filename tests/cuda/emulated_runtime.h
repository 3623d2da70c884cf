// CUDA's runtime library without a GPU, for tests: the functions that Gradloom calls, over host memory.
//
// Streams are queues. Nothing runs until somebody waits; then the heads of the queues are taken in a random order that keeps only what
// streams and events state, so that a missing event shows as wrong numbers. Fresh memory is poisoned. What is illegal while a graph is
// captured is refused as CUDA refuses it; so are launches on another device's stream than the current one's, and copies between the host
// and a device on the stream of another.
#pragma once

#include <driver_types.h>

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
  int older = 0;                            // how many of them, the last ones, have compute capability 8.0; the others have 9.0
  int64_t memory_bytes = int64_t{8} << 30;  // of a device
  uint64_t seed = 1;                        // of the order in which streams advance
  bool pinning_fails = false;
  bool peers = true;     // devices can read each other's memory, once that is enabled
  int kernel_us = 0;     // that each kernel takes besides
  int fails_after = -1;  // the n-th call from now that enqueues work fails with cudaErrorLaunchFailure; -1: none
};

// Begins anew: no devices' memory, streams or events are left over from before, or the test has leaked them, which fails.
void Reset(const Options& options);

// What was enqueued since the last Reset, in the order of the calls: "launch", "copy", "record e3", "wait e3", on which stream. Graph
// launches are one line, what was captured stands before them.
struct Call {
  std::string what;
  int stream = 0;  // number of the stream in the order of creation; 0: the default stream
  bool captured = false;
};
const std::vector<Call>& Calls();

// Enqueues work that begins when all these streams have come to it, and behind which all go on. `run` says whether it is through; it is
// asked until it is, and whoever waits for a stream may give that up.
cudaError_t EnqueueTogether(const std::string& what, std::span<cudaStream_t const> streams, std::function<bool()> run);

// Of the capture that is going on, if there is one: `object` is kept until its graph is gone and no launch of it is under way.
void KeepByGraph(std::shared_ptr<void> object);

// Runs what can run now.
void AdvanceStreams();

// Whether cuBLASLt knows an algorithm for any product, from now on.
void SetBlasHasAlgorithms(bool all);
// Whether it knows one for products with an epilogue other than a bias.
void SetBlasHasEpilogues(bool all);
// How many algorithms it knows for each, and which is the fastest, counted from 1; those before it take a millisecond. And how often its
// heuristics have been asked since, and which have run.
void SetBlasAlgorithms(int count, int fastest);
int BlasAsked();
std::set<int> BlasRan();

// Which device may read the memory of which other one, by the calls since the last Reset.
std::set<std::pair<int, int>> EnabledPeers();

}  // namespace gradloom::emulated
