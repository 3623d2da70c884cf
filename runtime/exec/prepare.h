// Allocates the memory of a plan's ranks, and prepares the streams of its entries.
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
std::unique_ptr<ArenaMemory> AllocateHostArena(size_t rank, int64_t bytes);

// The arenas of a process's ranks.
class Memory {
 public:
  // Allocates for the ranks `own`; functions must not be called for others. Throws Error(kResource).
  Memory(const Plan& plan, std::shared_ptr<StateArena> state, RankRange own);

  // The address of a buffer. Null for a feed; for an input slot, the offset from the slot's start.
  std::byte* Address(const Buffer& buffer, int rank) const;

  StateArena& state() const { return *state_; }
  const std::shared_ptr<StateArena>& shared_state() const { return state_; }
  // A rank's step parameters.
  std::byte* step(int rank, int64_t offset) const { return step_.at(rank * step_bytes_ + offset); }
  // Sizes for a rank, whether allocated now or not.
  int64_t transient_bytes(size_t rank) const { return sizes_.transient[static_cast<size_t>(places_[rank])]; }
  int64_t input_bytes(size_t rank) const { return 2 * sizes_.slot[static_cast<size_t>(places_[rank])]; }
  // Changes whenever an address changes, except those of feeds and input slots.
  int64_t version() const { return version_; }
  // The input slot of a step.
  std::byte* Slot(int rank, uint32_t step) const;
  // Whether any program has input slots.
  bool has_inputs() const;
  // Whether the transient arenas are allocated.
  bool has_transient() const { return !transient_.empty(); }
  // Throws Error(kResource).
  void AllocateTransient();
  void ReleaseTransient() { transient_.clear(), inputs_.clear(); }
  // Makes the system allocate physical memory for the state, once, and for the part of the transient arenas that an entry of the plan uses.
  // The transient arenas must be allocated.
  void Populate(const Plan& plan, int entry);
  // Continues with `plan`, which extends the old plan `before`. Throws Error(kResource), and then still serves the old plan.
  void Extend(const Plan& plan, const Plan& before);

  size_t ranks() const { return places_.size(); }  // of the plan
  RankRange own() const { return own_; }
  int place(size_t rank) const { return places_[rank]; }
  // Bytes that exist once: the constants of a place, and the step parameters of all ranks.
  int64_t constants_bytes(int place) const;
  int64_t step_bytes() const { return step_.bytes(); }

 private:
  // Constants that were added together, and the offset of the first one in the plan's arena.
  struct ConstantsPart {
    int64_t begin = 0;
    HostArena memory;
  };
  // The memory that a plan's programs need, by place.
  struct Sizes {
    std::vector<int64_t> transient;
    std::vector<int64_t> slot;  // one of the two
  };
  static Sizes SizesOf(const Plan& plan);
  // Allocates the constants of a plan from `first` on, which lie in the arena from `begin` on; nothing for a place that no own rank has.
  ConstantsPart AllocateConstants(const Plan& plan, int place, size_t first, int64_t begin) const;
  int64_t OwnBytes(size_t rank, int64_t bytes) const { return own_.contains(static_cast<int>(rank)) ? bytes : 0; }

  const RankRange own_;
  std::shared_ptr<StateArena> state_;
  std::vector<int> places_;  // by rank
  Sizes sizes_;
  bool state_populated_ = false;
  int64_t version_ = 0;
  int64_t step_bytes_;                                 // of a rank
  std::vector<std::vector<ConstantsPart>> constants_;  // by place, ascending
  HostArena step_;
  std::vector<HostArena> transient_, inputs_;  // by rank
};

// Describes a rank's part of a tensor of the whole batch.
SampleCopy CopyOf(const Shape& whole, int64_t element_bytes, int axis, int64_t inner, const RankBinding& rank, int64_t batch);

// The lanes of a process's ranks in an entry, rank by rank, with their events, groups and channels.
struct PreparedEntry {
  int64_t memory_version = 0;  // of the addresses
  bool writes_state = false;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<std::unique_ptr<Lane>> copies;  // lanes of copy streams, which may run ahead
  std::vector<std::unique_ptr<Event>> events;
  std::vector<std::unique_ptr<RankGroup>> groups;
  std::vector<std::unique_ptr<RankChannel>> channels;
};

// `communicator`: to the processes of the other ranks; null if there are none. Throws Error(kPlan, kUnsupported) naming the instruction.
PreparedEntry Prepare(const Plan& plan, int entry, const Memory& memory, Communicator* communicator);

// Updates the addresses of an entry that was prepared for `plan`, or for a plan that it extends.
void Rebind(const Plan& plan, int entry, const Memory& memory, PreparedEntry& prepared);

}  // namespace gradloom
