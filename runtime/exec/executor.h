// Runs a plan: takes all memory and prepares all kernels at load; a step is a loop over instructions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/tensor.h"
#include "runtime/exec/memory.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// What changes from step to step, besides the feeds.
struct StepParams {
  float lr = 0;
  int64_t step = 1;   // number of this update, from 1
  int64_t batch = 0;  // batches seen before this one
  int64_t seed = 0;
};

// The state arena of a plan: parameters, optimizer state, statistics. Executors of plans with the same
// state table can share one.
class StateArena {
 public:
  // Every tensor at its initial value.
  explicit StateArena(const Plan& plan);

  // A copy in logical order.
  Tensor Get(const StateTensor& state) const;
  // Throws Error(kShape) where dtype or shape differ.
  void Set(const StateTensor& state, const TensorView& value);

  std::byte* at(int64_t offset) const { return memory_.at(offset); }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  HostArena memory_;
};

// Runs entries on the CPU, on the caller's thread, one at a time. Not thread-safe.
class Executor {
 public:
  // `plan` must have been verified. `state` null: a fresh state arena. Throws Error(kResource, kPlan,
  // kUnsupported).
  explicit Executor(std::shared_ptr<const Plan> plan, std::shared_ptr<StateArena> state = nullptr);
  ~Executor();

  // Runs one entry. Feeds come in the order of Entry::feeds, in the given dtypes and shapes (checked:
  // Error(kShape)); their memory is read in place and must stay until Run returns. Allocates nothing of
  // its own after the entry's first run.
  void Run(int entry, std::span<const TensorView> feeds, const StepParams& params);

  // A fetch of the entry that ran last: valid until the next Run, and where it is a feed, as long as that.
  TensorView Fetched(int entry, int fetch) const;

  const Plan& plan() const { return *plan_; }
  StateArena& state() { return *state_; }
  const std::shared_ptr<StateArena>& shared_state() const { return state_; }

  // Counts the nanoseconds of each instruction of a program from now on, or stops doing so. A step pays
  // two readings of the clock an instruction.
  void set_timed(bool timed) { timed_ = timed; }
  // By instruction of the program: the sum over all timed runs. Empty where none was.
  std::vector<int64_t> nanoseconds(int program) const;

  // Bytes of the transient arena, which all entries share, and the most of them that a step has used.
  int64_t transient_bytes() const { return transient_.bytes(); }

 private:
  struct PreparedLaunch;
  struct PreparedProgram;

  PreparedProgram& Prepared(int program);
  std::byte* Address(const Buffer& buffer) const;
  template <bool kTimed>
  void RunLaunches(PreparedProgram& program);

  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<StateArena> state_;
  HostArena constants_;
  HostArena transient_;
  HostArena step_;
  bool timed_ = false;
  std::vector<const void*> feeds_;                          // of the entry that ran last
  std::vector<std::unique_ptr<PreparedProgram>> programs_;  // by index into Plan::programs
};

}  // namespace gradloom
