// What the emulated runtime consists of: streams, events, graphs and memory. Only emulated_runtime.cc uses it.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/emulated_runtime.h"

// A work item of a stream. It may start when all earlier items of its stream and those in `after` are done.
struct Work {
  std::function<bool()> run;  // returns whether the work is complete, and is called again if not; empty for a record or a wait
  std::vector<std::shared_ptr<Work>> after;
  int device = 0;
  std::function<bool()> ended;  // of work of several streams: whether it no longer waits for `after`
  bool done = false;
};
using WorkPtr = std::shared_ptr<Work>;

struct CUevent_st {
  WorkPtr recorded;  // the last record; null if never recorded
  int capture = 0;   // the capture in which it was recorded; 0 if none
  int device = 0;
  // When the record was reached. The event may have been destroyed by then.
  std::shared_ptr<std::chrono::steady_clock::time_point> time = std::make_shared<std::chrono::steady_clock::time_point>();
};

struct CUgraph_st {
  std::vector<std::pair<int, WorkPtr>> work;  // work by the capture's streams, in order
  std::vector<std::shared_ptr<void>> kept;
  bool joined = true;
};

struct CUgraphExec_st {
  CUgraph_st graph;
};

struct CUstream_st {
  int number = 0;
  int device = 0;
  std::deque<WorkPtr> queue;
  WorkPtr last;      // the last item of the queue, done or not
  int capture = 0;   // number of the capture that the stream takes part in; 0 if none
  WorkPtr captured;  // its last item in that capture
  bool origin = false;
};

namespace gradloom::emulated {

// A capture belongs to the thread that has begun it, as with cudaStreamCaptureModeThreadLocal.
struct Capture {
  int number = 0;
  CUstream_st* origin = nullptr;
  CUgraph_st graph;
};

using Block = std::pair<size_t, int>;  // size and device; -1 for pinned memory

struct World {
  std::recursive_mutex mutex;  // the inputs of the next step are copied on a separate thread
  Options options;
  std::mt19937_64 random{1};
  CUstream_st legacy;
  std::vector<std::unique_ptr<CUstream_st>> streams;
  std::set<CUevent_st*> events;
  std::map<void*, Block> memory;
  int captures = 0;
  std::vector<Call> calls;
  std::set<std::pair<int, int>> peers;  // pairs (reader, owner of the memory)
  std::set<int> contexts;               // devices that have a context of this process
  std::map<int, int> work_done;         // by device
};

inline World& TheWorld() {
  static World world;
  return world;
}

}  // namespace gradloom::emulated
