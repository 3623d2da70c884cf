// Runs a plan. Allocates all memory and prepares all kernels at load; a step is a loop over instructions.
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
class NumericsLog;

// The parameters that change from step to step, besides the feeds.
struct StepParams {
  double lr = 0;
  int64_t step = 1;   // number of this update, from 1
  int64_t batch = 0;  // batches seen before this one
  int64_t seed = 0;
};

// The memory of a device that this process holds, in bytes.
struct DeviceMemory {
  std::string device;     // "cpu", "cpu:1", "cuda:0"
  int64_t allocated = 0;  // kept between steps: state, constants, step parameters
  int64_t cached = 0;     // memory of steps; ReleaseMemory frees it, and the next step allocates it again
  int64_t free = 0;       // free on the device, for any program
};

// When an instruction of a rank ran, on the steady clock.
struct TimedInstruction {
  int rank = 0;
  int instruction = 0;  // index in the rank's program
  int64_t begin_ns = 0, end_ns = 0;
};

// A tensor in the memory of a device other than the CPU.
struct DeviceTensor {
  int ordinal = 0;
  TensorView view;  // of that memory
};

// Returns the index of the entry that runs next, and sets its feeds, as for Run. -1: unknown, or none.
using NextRun = std::function<int(std::vector<TensorView>& feeds)>;

// Options for running a plan.
struct ExecutorOptions {
  // Connects to the other processes that run the same plan, each with its own ranks (Communicator::RanksOf); null: this process runs all
  // ranks. All processes must then run the same entries in one order, and ask for the same fetches.
  std::shared_ptr<Communicator> communicator;
  // Memory for parameters and running statistics that is shared with other processes (exec/shared_parameters.h); null: private memory. For
  // one CPU device.
  std::shared_ptr<std::byte> parameters;
  // Look at what every instruction reads and writes, so that numerics() knows where a NaN or infinity came from. Changes no bit of a
  // result; each step takes many times as long.
  bool check_numerics = false;
  // The following are for devices with their own memory; the CPU ignores them.
  std::vector<int> ordinals;  // ordinals of the physical devices, by rank, each as its process numbers them; several ranks may share one;
                              // empty: 0, 1, 2 ...
  bool graph = true;          // capture a step once and launch it as one graph
  bool pin_memory = true;     // copy inputs through pinned host memory
  bool autotune = false;      // measure the libraries' algorithms; the processes of a job use those that the first one has found
};

// Runs entries, one at a time, on the kind of device for which the plan was made. Not thread-safe.
class Executor {
 public:
  // `plan` must be verified. `state` null: fresh state arenas. Throws Error(kResource, kPlan, kUnsupported, kDevice), and Error(kLimit) if
  // CPU devices do not fit this machine (CheckMachine).
  static std::unique_ptr<Executor> Make(std::shared_ptr<const Plan> plan, const ExecutorOptions& options = {},
                                        std::shared_ptr<StateArena> state = nullptr);
  virtual ~Executor() = default;

  // Runs one entry and waits for its end. Feeds are in the order of Entry::feeds, in the given dtypes and shapes (checked: Error(kShape)).
  // Their memory must stay valid until Run returns. A plan for devices takes feeds from host memory, or from the memory of its own devices,
  // after the work that the default stream there has by then; Error(kDevice) names others. Allocates nothing of its own after the entry's
  // first run. `next`: called on a thread of the executor during this run, if the plan has copy streams. The feeds that it returns are
  // copied into the other input slot, and the next Run with that entry and memory finds them there; the memory must stay valid and
  // unchanged until that Run returns. After an error, everything that the step writes is undefined. The error is that of the first stream
  // of the first rank that had one.
  virtual void Run(int entry, std::span<const TensorView> feeds, const StepParams& params, NextRun next = {}) = 0;
  // Whether the state is as before the last Run, which has failed: it ended before it wrote any. False if that is not known.
  virtual bool KeptState() const { return false; }
  // Continues with `plan`, which must be verified, if it extends the executor's (Extends). Prepared entries stay prepared, except on
  // devices whose memory of steps has to grow; fetched values become invalid. False: nothing has changed, and the plan needs an executor of
  // its own. Throws Error(kResource), and then keeps running the old plan.
  virtual bool Extend(std::shared_ptr<const Plan>) { return false; }
  // Waits until no feeds of a next run are being copied.
  virtual void FinishPrefetch() = 0;
  // The same, and forgets what was copied: feeds are recognized by their addresses, so this must precede a change of their memory.
  virtual void DropPrefetch() = 0;

  // A fetch of the entry that ran last, gathered from the ranks, only its valid part. Valid until the next Run, also if it is a feed, whose
  // memory may be gone by then. Throws Error(kData) for an invalid extent.
  TensorView Fetched(int entry, int fetch);

  // The same in the memory where it lies, with its full extents; nullopt if that is host memory, or if several devices have parts of it.
  virtual std::optional<DeviceTensor> FetchedOnDevice(int, int) { return std::nullopt; }

  virtual const Plan& plan() const = 0;
  virtual const std::shared_ptr<StateArena>& shared_state() const = 0;
  StateArena& state() { return *shared_state(); }

  // Starts or stops counting the nanoseconds of each instruction. A timed step reads the clock twice per instruction, and a device does not
  // use its graph.
  void set_timed(bool timed) { timed_ = timed; }
  // By instruction of the program: the sum over all timed runs of the first rank. Empty if none was timed.
  virtual std::vector<int64_t> nanoseconds(int program) const = 0;
  // The times of the entry's last run, which was timed: rank by rank, stream by stream, in the order of the stream.
  virtual std::vector<TimedInstruction> LastTimes(int entry) const = 0;

  // From now on every instruction of every stream waits for a random time before it begins, to test the order that the plan gives: nothing
  // that a step computes may change. `seed` decides the delays.
  void SetChaos(uint64_t seed);

  // What the instructions have written that is not finite; null without ExecutorOptions::check_numerics.
  const NumericsLog* numerics() const { return numerics_.get(); }

  // Takes the place of an executor that had this state: times steps and delays instructions if that one did, and knows where numbers that
  // are not finite came from. Both must be of the same ranks.
  void TakeOver(const Executor& before);

  // By rank of this process. Constants, which the CPU devices of a place share, count for the first of them.
  virtual std::vector<DeviceMemory> memory() const = 0;
  // Frees memory that only a running step needs, including prepared kernels. Changes no state; fetched values become invalid.
  virtual void ReleaseMemory() = 0;

  // Notes for the user about the kernels prepared since the last call: where a slower kernel replaces a library's.
  virtual std::vector<std::string> TakeNotes() { return {}; }
  // A note for the user about memory that the system refuses, although steps run without it; empty if there is none, and at later calls.
  virtual std::string TakeMemoryNote() { return {}; }

  // Bytes of the transient arena of a rank, which all entries share.
  virtual int64_t transient_bytes(size_t rank = 0) const = 0;
  // Bytes of a rank's input slots.
  virtual int64_t input_bytes(size_t rank) const = 0;

  // The threads that the plan gives these ranks together, if its devices are CPUs; at least 1.
  static int ThreadsOf(const Plan& plan, RankRange ranks);

 protected:
  bool timed() const { return timed_; }
  // Begins the delays, or begins them again with another seed.
  virtual void BeginChaos(uint64_t seed) = 0;
  // A fetch with its full extents.
  virtual TensorView FetchedFull(int entry, int fetch) = 0;
  // Throws Error(kShape).
  static void CheckFeeds(const Entry& entry, std::span<const TensorView> feeds);
  // The ranks that have samples of a fetch, or the whole fetch.
  struct FetchParts {
    struct Part {
      size_t rank = 0;
      const Buffer* buffer = nullptr;
    };
    std::vector<Part> parts;  // at least one, as the verifier has proved
    bool whole = false;       // the first one has the whole fetch
    Shape shape;              // shape of the whole fetch
  };
  static FetchParts PartsOf(const Plan& plan, int entry, int fetch);

  // The ranks that a process runs: all, or its share. Throws Error(kConfig) if the job has more processes than the plan has ranks.
  static RankRange OwnRanks(const Plan& plan, const Communicator* communicator);
  // Returns the address in host memory of a part that a rank of this process has.
  using PartAddress = std::function<const void*(const FetchParts::Part& part)>;
  // A fetch if several processes run the plan. If one rank has it whole, its process sends it to those that lack it; if it is divided by
  // samples, each process sends its own to all. All processes must call it.
  TensorView FetchOfAll(Communicator& communicator, int entry, int fetch, const PartAddress& address);
  // Memory for a fetch of an entry, valid until ClearFetched.
  Tensor& FetchedTensor(int entry, int fetch, DType dtype, const Shape& shape);
  void ClearFetched() {
    fetched_.clear();
    fed_.clear();
  }
  // At the end of a run: copies the feeds that the ranks fetch, and replaces their addresses by those of the copies.
  void KeepFedFetches(int entry, RankRange ranks, std::vector<const void*>& feeds);
  // Copies a feed to memory that is valid until the next run or ClearFetched.
  virtual const void* KeepFeed(int entry, int feed, const void* given);

  // Writes the step parameters of a rank at their offsets; `step` has StepLayout::bytes bytes.
  static void WriteStepParams(const StepLayout& layout, const StepParams& params, const RankBinding& rank, std::byte* step);

  std::shared_ptr<NumericsLog> numerics_;  // null: numbers are not looked at

 private:
  TensorView SharedWhole(Communicator& communicator, int entry, int fetch, const FetchParts& found, const PartAddress& address);
  TensorView GatheredFromAll(Communicator& communicator, int entry, int fetch, const FetchParts& found, const PartAddress& address);

  bool timed_ = false;
  std::optional<uint64_t> chaos_;                  // the seed
  std::map<std::pair<int, int>, Tensor> fetched_;  // by entry and fetch: gathered fetches, and those copied to the host
  std::map<std::pair<int, int>, Tensor> fed_;      // by entry and feed: fetched feeds
  std::vector<bool> kept_feeds_;                   // by feed, for KeepFedFetches
  std::map<std::pair<int, int>, Tensor> cut_;      // by entry and fetch: valid parts that are not contiguous
};

}  // namespace gradloom
