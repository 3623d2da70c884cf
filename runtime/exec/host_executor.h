// Runs plans on the CPU.
#pragma once

#include <exception>
#include <map>
#include <utility>

#include "runtime/base/background.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/memory.h"
#include "runtime/exec/numerics.h"
#include "runtime/exec/prepare.h"
#include "runtime/exec/stream_threads.h"

namespace gradloom {

// An entry with one rank and one stream runs on the caller's thread and reads feeds in place. Otherwise each stream of each rank has a
// thread; the first uses the caller's. In a parallel region of OpenMP, a thread of the executor takes the place of the caller's: there
// kernels would take the caller's number in its team for the number in theirs, and could have no teams. It also does if the caller's thread
// may have a team that cannot be used: one that computes with floating-point numbers in its own way (DefaultFloats), or one of the process
// that this one was forked from, whose threads are not here.
//
// A run leaves out the settled instructions of its entry if the run before was of the same entry and nobody has set state since.
class HostExecutor : public Executor {
 public:
  // `communicator`, `check_numerics`: as in ExecutorOptions. Throws Error(kConfig) if it has more processes than the plan has ranks.
  explicit HostExecutor(std::shared_ptr<const Plan> plan, std::shared_ptr<StateArena> state = nullptr,
                        std::shared_ptr<Communicator> communicator = nullptr, bool check_numerics = false);
  ~HostExecutor() override;

  void Run(int entry, std::span<const TensorView> feeds, const StepParams& params, NextRun next = {}) override;
  bool KeptState() const override { return !step_.wrote_state.load(std::memory_order_relaxed); }
  bool Extend(std::shared_ptr<const Plan> plan) override;
  void FinishPrefetch() override { background_.Wait(); }
  void DropPrefetch() override;
  TensorView FetchedFull(int entry, int fetch) override;
  const Plan& plan() const override { return *plan_; }
  const std::shared_ptr<StateArena>& shared_state() const override { return memory_.shared_state(); }
  std::vector<int64_t> nanoseconds(int program) const override;
  std::vector<TimedInstruction> LastTimes(int entry) const override;
  std::vector<DeviceMemory> memory() const override;
  void ReleaseMemory() override;
  int64_t transient_bytes(size_t rank = 0) const override { return memory_.transient_bytes(rank); }
  int64_t input_bytes(size_t rank) const override { return memory_.input_bytes(rank); }

 private:
  void BeginChaos(uint64_t seed) override;
  void RunHere(int entry, std::span<const TensorView> feeds, const StepParams& params, NextRun next);
  // Whether a stream that may run on the caller's thread has a team.
  bool UsesTeam(int entry) const;
  PreparedEntry& Prepared(int entry);
  const void* AddressOf(const Buffer& buffer, int rank) const;
  // Runs an entry's copy streams for a step.
  void CopyInputs(PreparedEntry& entry, const std::vector<const void*>& feeds, uint32_t step);
  void PrefetchFeeds(const NextRun& next, uint32_t step) noexcept;
  // Runs the lanes of a step to their ends. Throws the first error.
  void RunLanes(PreparedEntry& entry);

  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<Communicator> communicator_;  // null: all ranks are in this process
  Memory memory_;
  StepState step_;
  uint64_t chaos_seed_ = 0;
  // What settled instructions (runtime/plan/settled.h) have written is in memory after a run that ended, as long as nothing changes what is
  // noted here of that run. entry -1: there is no such run.
  struct SettledRun {
    int entry = -1;
    int64_t memory = 0, state = 0;  // versions
    bool operator==(const SettledRun&) const = default;
  };
  // Whether a run of the entry may leave out settled instructions. Not if numbers are looked at, since the origin of one that is not finite
  // may be such an instruction.
  bool Repeats(int entry) const;

  std::vector<const void*> feeds_;                        // of the last run
  std::vector<std::unique_ptr<PreparedEntry>> prepared_;  // by index into Plan::entries
  SettledRun settled_;
  std::vector<std::exception_ptr> errors_;  // by lane, of the run
  StreamThreads threads_;
  Background outside_;  // the thread that takes the place of the caller's
  // The inputs copied for the next step: its entry and feeds. Only the background thread writes them while it works.
  int prefetched_entry_ = -1;
  std::vector<const void*> prefetched_feeds_;
  StepState prefetched_step_;
  Background background_;  // declared last, since its work uses all of the above
};

}  // namespace gradloom
