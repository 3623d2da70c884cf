// Runs a plan: takes all memory and prepares all kernels at load; a step is a loop over instructions.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/tensor.h"
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
// state table and as many ranks can share them.
class StateArena {
 public:
  // Every tensor at its initial value.
  explicit StateArena(const Plan& plan);

  // A copy in logical order, from the first rank.
  Tensor Get(const StateTensor& state) const;
  // On all ranks. Throws Error(kShape) where dtype or shape differ.
  void Set(const StateTensor& state, const TensorView& value);

  std::byte* at(int rank, int64_t offset) const { return memory_[static_cast<size_t>(rank)].at(offset); }
  size_t ranks() const { return memory_.size(); }
  // Of one rank.
  int64_t bytes() const { return memory_.front().bytes(); }

 private:
  std::vector<HostArena> memory_;
};

// When an instruction of a rank ran, by the steady clock.
struct TimedInstruction {
  int rank = 0;
  int instruction = 0;  // of the rank's program
  int64_t begin_ns = 0, end_ns = 0;
};

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
  // its own after the entry's first run. After an error, which is that of the first stream of the first rank that
  // had one, what the step was to change is undefined.
  void Run(int entry, std::span<const TensorView> feeds, const StepParams& params);

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

  // By rank. Constants, which CPU devices share, count for the first.
  std::vector<DeviceMemory> memory() const;
  // Gives back what only a running step needs, prepared kernels included. Changes no state; what was fetched is gone.
  void ReleaseMemory();

  // Bytes of the transient arena of a rank, which all entries share: what a step uses.
  int64_t transient_bytes() const { return memory_.transient_bytes(); }

 private:
  PreparedEntry& Prepared(int entry);
  void SetStepParams(const Entry& entry, const StepParams& params);
  const void* AddressOf(const Buffer& buffer, int rank) const;

  std::shared_ptr<const Plan> plan_;
  Memory memory_;
  StepState step_;
  uint64_t chaos_seed_ = 0;
  std::vector<const void*> feeds_;                        // of the entry that ran last
  std::vector<std::unique_ptr<PreparedEntry>> prepared_;  // by index into Plan::entries
  std::map<std::pair<int, int>, Tensor> gathered_;        // by entry and fetch
  std::vector<std::exception_ptr> errors_;                // by lane, of the run
  StreamThreads threads_;
};

}  // namespace gradloom
