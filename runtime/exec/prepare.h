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
  std::byte* step(int64_t offset) const { return step_.at(offset); }
  // Of a rank, whether it is taken now or not.
  int64_t transient_bytes() const { return transient_bytes_; }
  // Of all ranks.
  bool has_transient() const { return !transient_.empty(); }
  // Throws Error(kResource).
  void TakeTransient();
  void ReleaseTransient() { transient_.clear(); }

  size_t ranks() const { return ranks_; }
  // Bytes that all ranks read: constants and step parameters.
  int64_t shared_bytes() const { return constants_.bytes() + step_.bytes(); }

 private:
  std::shared_ptr<StateArena> state_;
  size_t ranks_;
  int64_t transient_bytes_ = 0;
  HostArena constants_, step_;  // read-only within a step: one for all ranks
  std::vector<HostArena> transient_;
};

// The lanes of all ranks of an entry, those of rank 0 first, with what they meet in.
struct PreparedEntry {
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<std::unique_ptr<Event>> events;
  std::vector<std::unique_ptr<LocalGroup>> groups;
  std::vector<std::unique_ptr<LocalChannel>> channels;
};

// Throws Error(kPlan, kUnsupported) naming the instruction.
PreparedEntry Prepare(const Plan& plan, int entry, const Memory& memory);

}  // namespace gradloom
