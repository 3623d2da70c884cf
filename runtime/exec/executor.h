// Runs a plan: takes all memory and prepares all kernels at load; a step is a loop over instructions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/comm/rank_range.h"
#include "runtime/exec/state_arena.h"
#include "runtime/plan/plan.h"

namespace gradloom {

class Communicator;

// What changes from step to step, besides the feeds.
struct StepParams {
  float lr = 0;
  int64_t step = 1;   // number of this update, from 1
  int64_t batch = 0;  // batches seen before this one
  int64_t seed = 0;
};

// What this process holds of a device's memory, in bytes.
struct DeviceMemory {
  std::string device;     // "cpu", "cpu:1", "cuda:0"
  int64_t allocated = 0;  // must be kept: state, constants, step parameters
  int64_t cached = 0;     // for steps; ReleaseMemory gives it back, and the next step takes it again
  int64_t free = 0;       // of the device, for anybody
};

// When an instruction of a rank ran, by the steady clock.
struct TimedInstruction {
  int rank = 0;
  int instruction = 0;  // of the rank's program
  int64_t begin_ns = 0, end_ns = 0;
};

// Elements in the memory of a device that is no CPU.
struct DeviceTensor {
  int ordinal = 0;
  TensorView view;  // of that memory
};

// What runs after a run: the index of its entry, its feeds as for Run. -1: not known, or nothing.
using NextRun = std::function<int(std::vector<TensorView>& feeds)>;

// How a plan is run.
struct ExecutorOptions {
  // To the other processes that run the same plan, each its own ranks (Communicator::RanksOf); null: this one runs all. All of them then
  // run the same entries in one order, and ask for the same fetches.
  std::shared_ptr<Communicator> communicator;
  // Parameters and running statistics are in this memory, with those of other processes (exec/shared_parameters.h); null: in memory of its
  // own. For one CPU device.
  std::shared_ptr<std::byte> parameters;
  // Of devices with a memory of their own; the CPU has no use for the rest.
  std::vector<int> ordinals;  // of the physical devices, by rank, each in its process; several ranks may share one; empty: 0, 1, 2 ...
  bool graph = true;          // a step is captured once and launched as one piece of work
  bool pin_memory = true;     // inputs pass through pinned host memory
  bool autotune = false;      // the libraries' algorithms are measured; the processes of a job take those that the first one has found
};

// Runs entries, one at a time, on the kind of device that the plan was made for. Not thread-safe.
class Executor {
 public:
  // `plan` must have been verified. `state` null: fresh state arenas. Throws Error(kResource, kPlan, kUnsupported, kDevice), and
  // Error(kLimit) where CPU devices do not fit this machine (CheckMachine).
  static std::unique_ptr<Executor> Make(std::shared_ptr<const Plan> plan, const ExecutorOptions& options = {},
                                        std::shared_ptr<StateArena> state = nullptr);
  virtual ~Executor() = default;

  // Runs one entry and returns when it has ended. Feeds come in the order of Entry::feeds, in the given dtypes and shapes (checked:
  // Error(kShape)); their memory must stay until Run returns. A plan for devices takes feeds from host memory, or from memory of its own
  // devices, behind what the default stream there has by then; Error(kDevice) names others. Allocates nothing of its own after the entry's
  // first run. `next`: asked on a thread of the executor's own while this runs, where the plan has copy streams; what it gives is copied
  // into the other input slot, and the next Run with that entry and memory finds it there; the memory must stay, unchanged, until that has
  // returned. After an error, which is that of the first stream of the first rank that had one, what the step was to change is undefined.
  virtual void Run(int entry, std::span<const TensorView> feeds, const StepParams& params, NextRun next = {}) = 0;
  // Goes on with `plan`, which must have been verified, where that extends the executor's (Extends); what was prepared stays so, and what
  // was fetched is gone. False, and nothing has changed: that needs an executor of its own. Throws Error(kResource), and runs the plan
  // that it has.
  virtual bool Extend(std::shared_ptr<const Plan>) { return false; }
  // Returns when nothing of a next run is being copied.
  virtual void FinishAhead() = 0;

  // A fetch of the entry that ran last, gathered from the ranks, what counts of it alone: valid until the next Run, and where it is a
  // feed, as long as that. Throws Error(kData) where an extent is none.
  TensorView Fetched(int entry, int fetch);

  // The same where it lies, with all that there is room for: none where that is host memory, or where several devices have parts of it.
  virtual std::optional<DeviceTensor> FetchedOnDevice(int, int) { return std::nullopt; }

  virtual const Plan& plan() const = 0;
  virtual const std::shared_ptr<StateArena>& shared_state() const = 0;
  StateArena& state() { return *shared_state(); }

  // Counts the nanoseconds of each instruction from now on, or stops doing so. A step pays two readings of the clock
  // an instruction; a device's graph is not used meanwhile.
  virtual void set_timed(bool timed) = 0;
  // By instruction of the program: the sum over all timed runs of the first rank. Empty where none was.
  virtual std::vector<int64_t> nanoseconds(int program) const = 0;
  // Of the entry's last run, which was timed: rank by rank, stream by stream, in the order of the stream.
  virtual std::vector<TimedInstruction> LastTimes(int entry) const = 0;

  // From now on every instruction of every stream waits for a random time before it begins, as a test of what the plan
  // orders: nothing that a step computes may change. The delays go by the seed.
  virtual void SetChaos(uint64_t seed) = 0;

  // By rank of this process. Constants, which the CPU devices of a place share, count for its first.
  virtual std::vector<DeviceMemory> memory() const = 0;
  // Gives back what only a running step needs, prepared kernels included. Changes no state; what was fetched is gone.
  virtual void ReleaseMemory() = 0;

  // What a person should know of the kernels that have been prepared since the last call: where a slower one stands in for a library's.
  virtual std::vector<std::string> TakeNotes() { return {}; }

  // Bytes of the transient arena of a rank, which all entries share: what a step uses.
  virtual int64_t transient_bytes(size_t rank = 0) const = 0;
  // Bytes of a rank's input slots.
  virtual int64_t input_bytes(size_t rank) const = 0;

 protected:
  // A fetch with all that there is room for.
  virtual TensorView FetchedWhole(int entry, int fetch) = 0;
  // Throws Error(kShape).
  static void CheckFeeds(const Entry& entry, std::span<const TensorView> feeds);
  // The ranks that have samples of a fetch, or all of it.
  struct FetchParts {
    struct Part {
      size_t rank = 0;
      const Buffer* buffer = nullptr;
    };
    std::vector<Part> parts;  // at least one: the verifier found it
    bool whole = false;       // the first has all of it
    Shape shape;              // of the whole
  };
  static FetchParts PartsOf(const Plan& plan, int entry, int fetch);

  // The ranks that a process drives: all, or its share. Throws Error(kConfig) where the job has more processes than the plan has ranks.
  static RankRange OwnRanks(const Plan& plan, const Communicator* communicator);
  // Where, in host memory, the bytes of a part are, which is a rank's of this process.
  using PartAddress = std::function<const void*(const FetchParts::Part& part)>;
  // A fetch where several processes run the plan: what one rank has whole, those that have it not get from its process; of the samples of
  // several, each process sends its own to all. All call it.
  TensorView FetchOfAll(Communicator& communicator, int entry, int fetch, const PartAddress& address);
  // Memory for a fetch of an entry, which stays until ForgetFetched.
  Tensor& FetchedTensor(int entry, int fetch, DType dtype, const Shape& shape);
  void ForgetFetched() { fetched_.clear(); }

  // The step parameters of a rank at their places; `step` has StepLayout::bytes bytes.
  static void WriteStepParams(const StepLayout& layout, const StepParams& params, const RankBinding& rank, std::byte* step);

 private:
  TensorView SharedWhole(Communicator& communicator, int entry, int fetch, const FetchParts& found, const PartAddress& address);
  TensorView GatheredFromAll(Communicator& communicator, int entry, int fetch, const FetchParts& found, const PartAddress& address);

  std::map<std::pair<int, int>, Tensor> fetched_;  // by entry and fetch: what was put together, or brought to the host
  std::map<std::pair<int, int>, Tensor> cut_;      // the same: what counts, where it does not lie together
};

}  // namespace gradloom
