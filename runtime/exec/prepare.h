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
  int64_t transient_bytes(size_t rank) const { return sizes_.transient[static_cast<size_t>(places_[rank])]; }
  int64_t input_bytes(size_t rank) const { return 2 * sizes_.slot[static_cast<size_t>(places_[rank])]; }
  // Changes whenever an address has, but for those of feeds and input slots.
  int64_t version() const { return version_; }
  // The input slot of a step.
  std::byte* Slot(int rank, uint32_t step) const;
  // Whether any program has input slots.
  bool has_inputs() const;
  // Of all ranks.
  bool has_transient() const { return !transient_.empty(); }
  // Throws Error(kResource).
  void TakeTransient();
  void ReleaseTransient() { transient_.clear(), inputs_.clear(); }
  // Has the system find the state's memory, once, and what an entry of the plan uses of the transient arenas, which are taken.
  void Populate(const Plan& plan, int entry);
  // Goes on for `plan`, which extends `before`, the plan so far. Throws Error(kResource), and serves that plan as before.
  void Extend(const Plan& plan, const Plan& before);

  size_t ranks() const { return places_.size(); }  // of the plan
  RankRange own() const { return own_; }
  int place(size_t rank) const { return places_[rank]; }
  // Bytes that are there once: the constants of a place, and the step parameters of all ranks.
  int64_t constants_bytes(int place) const;
  int64_t step_bytes() const { return step_.bytes(); }

 private:
  // Constants that came together, and where in the plan's arena the first of them begins.
  struct ConstantsPart {
    int64_t begin = 0;
    HostArena memory;
  };
  // What a plan's programs need, by place.
  struct Sizes {
    std::vector<int64_t> transient;
    std::vector<int64_t> slot;  // one of the two
  };
  static Sizes SizesOf(const Plan& plan);
  // Of the constants of a plan from one on, in the arena from `begin` on; of a place that no own rank has, nothing.
  ConstantsPart TakeConstants(const Plan& plan, int place, size_t first, int64_t begin) const;
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

// What a rank has of a tensor of the whole batch.
SampleCopy CopyOf(const Shape& whole, int64_t element_bytes, int axis, int64_t inner, const RankBinding& rank, int64_t batch);

// The lanes of a process's ranks in an entry, those of the first rank first, with what they meet in.
struct PreparedEntry {
  int64_t memory_version = 0;  // of the addresses
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<std::unique_ptr<Lane>> copies;  // of copy streams: may run ahead
  std::vector<std::unique_ptr<Event>> events;
  std::vector<std::unique_ptr<RankGroup>> groups;
  std::vector<std::unique_ptr<RankChannel>> channels;
};

// `communicator`: to the processes of the other ranks; null where there are none. Throws Error(kPlan, kUnsupported) naming the
// instruction.
PreparedEntry Prepare(const Plan& plan, int entry, const Memory& memory, Communicator* communicator);

// Gives an entry that was prepared for `plan`, or for one that it extends, the addresses that its operands have now.
void Rebind(const Plan& plan, int entry, const Memory& memory, PreparedEntry& prepared);

}  // namespace gradloom
