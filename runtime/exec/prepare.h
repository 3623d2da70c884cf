// Takes the memory of a plan's ranks and prepares the streams of its entries.
#pragma once

#include <memory>
#include <vector>

#include "runtime/exec/lane.h"
#include "runtime/exec/memory.h"
#include "runtime/plan/plan.h"

namespace gradloom {

class StateArena;

// Addresses of the arenas of all ranks of a process.
class Memory {
 public:
  // Throws Error(kResource).
  Memory(const Plan& plan, std::shared_ptr<StateArena> state);

  // Null for a feed.
  std::byte* Address(const Buffer& buffer, int rank) const;

  StateArena& state() const { return *state_; }
  const std::shared_ptr<StateArena>& shared_state() const { return state_; }
  // A rank's step parameters.
  std::byte* step(int rank, int64_t offset) const { return step_.at(rank * step_bytes_ + offset); }
  // Of a rank, whether it is taken now or not.
  int64_t transient_bytes() const { return transient_bytes_; }
  // Of all ranks.
  bool has_transient() const { return !transient_.empty(); }
  // Throws Error(kResource).
  void TakeTransient();
  void ReleaseTransient() { transient_.clear(); }

  size_t ranks() const { return ranks_; }
  // Bytes that are there once: constants and the step parameters of all ranks.
  int64_t shared_bytes() const { return constants_.bytes() + step_.bytes(); }

 private:
  std::shared_ptr<StateArena> state_;
  size_t ranks_;
  int64_t transient_bytes_ = 0;
  int64_t step_bytes_;  // of a rank
  HostArena constants_, step_;
  std::vector<HostArena> transient_;
};

// Where samples of a device go to or come from: `runs` pieces of `bytes` bytes, at steps apart in the whole batch's tensor and
// in the device's.
struct SampleCopy {
  int64_t runs = 1, bytes = 0;
  int64_t whole_offset = 0, whole_step = 0;

  void Scatter(const std::byte* whole, std::byte* part) const;
  void Gather(const std::byte* part, std::byte* whole) const;
};

// What a rank has of a tensor of the whole batch.
SampleCopy CopyOf(const Shape& whole, int64_t element_bytes, int axis, int64_t inner, const RankBinding& rank, int64_t batch);

// A feed whose samples do not lie together: copied for a rank before each step.
struct StagedFeed {
  int feed = 0;
  SampleCopy copy;
  HostArena memory;
};

// The lanes of all ranks of an entry, those of rank 0 first, with what they meet in.
struct PreparedEntry {
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<std::unique_ptr<Event>> events;
  std::vector<std::unique_ptr<LocalGroup>> groups;
  std::vector<std::unique_ptr<LocalChannel>> channels;
  std::vector<StagedFeed> staged;
};

// Throws Error(kPlan, kUnsupported) naming the instruction.
PreparedEntry Prepare(const Plan& plan, int entry, const Memory& memory);

}  // namespace gradloom
