// Runs a plan: takes all memory and prepares all kernels at load; a step is a loop over instructions.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/exec/background.h"
#include "runtime/exec/memory.h"
#include "runtime/exec/prepare.h"
#include "runtime/exec/stream_threads.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// What changes from step to step, besides the feeds.
struct StepParams {
  float lr = 0;
  int64_t step = 1;   // number of this update, from 1
  int64_t batch = 0;  // batches seen before this one
  int64_t seed = 0;
};

// What this process holds of a device's memory, in bytes.
struct DeviceMemory {
  int64_t allocated = 0;  // must be kept: state, constants, step parameters
  int64_t cached = 0;     // for steps; ReleaseMemory gives it back, and the next step takes it again
  int64_t free = 0;       // of the device, for anybody
};

// The state arenas of a plan's ranks: parameters, optimizer state, statistics. Executors of plans with the same
// state table, places and ranks can share them.
class StateArena {
 public:
  // Every tensor at its initial value.
  explicit StateArena(const Plan& plan);

  // A copy in logical order, from the first rank that holds it.
  Tensor Get(const StateTensor& state) const;
  // On all ranks that hold it. Throws Error(kShape) where dtype or shape differ.
  void Set(const StateTensor& state, const TensorView& value);

  std::byte* at(int rank, int64_t offset) const { return memory_[static_cast<size_t>(rank)].at(offset); }
  size_t ranks() const { return memory_.size(); }
  int64_t bytes(size_t rank) const { return memory_[rank].bytes(); }

 private:
  std::vector<HostArena> memory_;
  std::vector<int> places_;  // by rank
};

// When an instruction of a rank ran, by the steady clock.
struct TimedInstruction {
  int rank = 0;
  int instruction = 0;  // of the rank's program
  int64_t begin_ns = 0, end_ns = 0;
};

// What runs after a run: the index of its entry, its feeds as for Run. -1: not known, or nothing.
using NextRun = std::function<int(std::vector<TensorView>& feeds)>;

// Runs entries on CPU devices, one entry at a time. An entry of one rank and one stream runs on the caller's thread;
// otherwise each stream of each rank has a thread, the first one the caller's. Not thread-safe.
class Executor {
 public:
  // `plan` must have been verified. `state` null: fresh state arenas. Throws Error(kResource, kPlan,
  // kUnsupported).
  explicit Executor(std::shared_ptr<const Plan> plan, std::shared_ptr<StateArena> state = nullptr);
  ~Executor();

  // Runs one entry. Feeds come in the order of Entry::feeds, in the given dtypes and shapes (checked:
  // Error(kShape)); their memory is read in place and must stay until Run returns. Allocates nothing of
  // its own after the entry's first run. `next`: asked on a thread of the executor's own while this runs, where the plan has copy
  // streams; what it gives is copied into the other input slot, and the next Run with that entry and memory finds it there; the
  // memory must stay, unchanged, until that has returned. After an error, which is that of the first stream of the first rank that
  // had one, what the step was to change is undefined.
  void Run(int entry, std::span<const TensorView> feeds, const StepParams& params, NextRun next = {});
  // Returns when nothing of a next run is being copied.
  void FinishAhead() { background_.Wait(); }

  // A fetch of the entry that ran last, gathered from the ranks: valid until the next Run, and where it is a feed, as long as
  // that.
  TensorView Fetched(int entry, int fetch);

  const Plan& plan() const { return *plan_; }
  StateArena& state() { return memory_.state(); }
  const std::shared_ptr<StateArena>& shared_state() const { return memory_.shared_state(); }

  // Counts the nanoseconds of each instruction from now on, or stops doing so. A step pays two readings of the clock
  // an instruction.
  void set_timed(bool timed) { step_.timed = timed; }
  // By instruction of the program: the sum over all timed runs of the first rank. Empty where none was.
  std::vector<int64_t> nanoseconds(int program) const;
  // Of the entry's last run, which was timed: rank by rank, stream by stream, in the order of the stream.
  std::vector<TimedInstruction> LastTimes(int entry) const;

  // From now on every instruction of every stream waits for a random time before it begins, as a test of what the plan
  // orders: nothing that a step computes may change. The delays go by the seed.
  void SetChaos(uint64_t seed);

  // By rank. Constants, which the CPU devices of a place share, count for its first.
  std::vector<DeviceMemory> memory() const;
  // Gives back what only a running step needs, prepared kernels included. Changes no state; what was fetched is gone.
  void ReleaseMemory();

  // Bytes of the transient arena of a rank, which all entries share: what a step uses.
  int64_t transient_bytes(size_t rank = 0) const { return memory_.transient_bytes(rank); }
  // Bytes of a rank's two input slots.
  int64_t input_bytes(size_t rank) const { return memory_.input_bytes(rank); }

 private:
  PreparedEntry& Prepared(int entry);
  void SetStepParams(const Entry& entry, const StepParams& params);
  const void* AddressOf(const Buffer& buffer, int rank) const;
  // Runs an entry's copy streams for a step.
  void CopyInputs(PreparedEntry& entry, const std::vector<const void*>& feeds, uint32_t step);
  void CopyAhead(const NextRun& next, uint32_t step);

  std::shared_ptr<const Plan> plan_;
  Memory memory_;
  StepState step_;
  uint64_t chaos_seed_ = 0;
  std::vector<const void*> feeds_;                        // of the entry that ran last
  std::vector<std::unique_ptr<PreparedEntry>> prepared_;  // by index into Plan::entries
  std::map<std::pair<int, int>, Tensor> gathered_;        // by entry and fetch
  std::vector<std::exception_ptr> errors_;                // by lane, of the run
  StreamThreads threads_;
  // What has been copied for the next step: its entry and feeds. Written by the background thread alone while that works.
  int ahead_entry_ = -1;
  std::vector<const void*> ahead_feeds_;
  StepState ahead_step_;
  Background background_;  // last: its work uses all of the above
};

}  // namespace gradloom
