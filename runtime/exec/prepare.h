// Takes the memory of a plan's ranks and prepares the streams of its entries.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/rank_range.h"
#include "runtime/exec/lane.h"
#include "runtime/exec/memory.h"
#include "runtime/exec/state_arena.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// State arenas in host memory.
std::unique_ptr<ArenaMemory> TakeHostArena(size_t rank, int64_t bytes);

// Addresses of the arenas of a process's ranks.
class Memory {
 public:
  // Of the ranks `own`, which are all that is asked for. Throws Error(kResource).
  Memory(const Plan& plan, std::shared_ptr<StateArena> state, RankRange own);

  // Null for a feed; within an input slot from its beginning.
  std::byte* Address(const Buffer& buffer, int rank) const;

  StateArena& state() const { return *state_; }
  const std::shared_ptr<StateArena>& shared_state() const { return state_; }
  // A rank's step parameters.
  std::byte* step(int rank, int64_t offset) const { return step_.at(rank * step_bytes_ + offset); }
  // Of a rank, whether it is taken now or not.
  int64_t transient_bytes(size_t rank) const { return transient_bytes_[static_cast<size_t>(places_[rank])]; }
  int64_t input_bytes(size_t rank) const { return 2 * slot_bytes_[static_cast<size_t>(places_[rank])]; }
  // The input slot of a step.
  std::byte* Slot(int rank, uint32_t step) const;
  // Whether any program has input slots.
  bool has_inputs() const;
  // Of all ranks.
  bool has_transient() const { return !transient_.empty(); }
  // Throws Error(kResource).
  void TakeTransient();
  void ReleaseTransient() { transient_.clear(), inputs_.clear(); }

  size_t ranks() const { return places_.size(); }  // of the plan
  RankRange own() const { return own_; }
  int place(size_t rank) const { return places_[rank]; }
  // Bytes that are there once: the constants of a place, and the step parameters of all ranks.
  int64_t constants_bytes(int place) const { return constants_[static_cast<size_t>(place)].bytes(); }
  int64_t step_bytes() const { return step_.bytes(); }

 private:
  const RankRange own_;
  std::shared_ptr<StateArena> state_;
  std::vector<int> places_;               // by rank
  std::vector<int64_t> transient_bytes_;  // by place
  std::vector<int64_t> slot_bytes_;       // by place: of one of the two
  int64_t step_bytes_;                    // of a rank
  std::vector<HostArena> constants_;      // by place; of those that no own rank has, nothing
  HostArena step_;
  std::vector<HostArena> transient_, inputs_;  // by rank
};

// What a rank has of a tensor of the whole batch.
SampleCopy CopyOf(const Shape& whole, int64_t element_bytes, int axis, int64_t inner, const RankBinding& rank, int64_t batch);

// The lanes of a process's ranks in an entry, those of the first rank first, with what they meet in.
struct PreparedEntry {
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<std::unique_ptr<Lane>> copies;  // of copy streams: may run ahead
  std::vector<std::unique_ptr<Event>> events;
  std::vector<std::unique_ptr<RankGroup>> groups;
  std::vector<std::unique_ptr<RankChannel>> channels;
};

// `communicator`: to the processes of the other ranks; null where there are none. Throws Error(kPlan, kUnsupported) naming the
// instruction.
PreparedEntry Prepare(const Plan& plan, int entry, const Memory& memory, Communicator* communicator);

}  // namespace gradloom
