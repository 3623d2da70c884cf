// The state of a plan's ranks between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/comm/rank_range.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Memory of a rank's device for one arena.
class ArenaMemory {
 public:
  virtual ~ArenaMemory() = default;
  virtual std::byte* at(int64_t offset) const = 0;  // an address of the device
  virtual int64_t bytes() const = 0;
  // Whether at() is memory of this process alone, in which several threads may write at once.
  virtual bool own_host_memory() const { return false; }
  // Has the system find all of it now, where that is a choice (HostArena::Populate).
  virtual void Populate() {}
  // To and from host memory; they return when that is done.
  virtual void Read(int64_t offset, int64_t bytes, void* to) const = 0;
  virtual void Write(int64_t offset, int64_t bytes, const void* from) = 0;
};

// Takes zeroed memory for a rank. Throws Error(kResource).
using TakeArena = std::function<std::unique_ptr<ArenaMemory>(size_t rank, int64_t bytes)>;

// The state arenas of a plan's ranks: parameters, optimizer state, statistics. Executors of plans with the same
// state table, places and ranks can share them.
class StateArena {
 public:
  // Of the ranks `own`, with every tensor at its initial value.
  StateArena(const Plan& plan, const TakeArena& take, RankRange own);

  // A copy in logical order, from the first of these ranks that holds it. Throws Error(kPlan) where none does.
  Tensor Get(const StateTensor& state) const;
  // On all ranks that hold it. Throws Error(kShape) where dtype or shape differ.
  void Set(const StateTensor& state, const TensorView& value);

  std::byte* at(int rank, int64_t offset) const { return memory_[static_cast<size_t>(rank)]->at(offset); }
  size_t ranks() const { return memory_.size(); }                     // of the plan
  bool holds(size_t rank) const { return memory_[rank] != nullptr; }  // of this process
  // Whether a rank of this process holds the tensor.
  bool holds(const StateTensor& state) const { return HolderOf(state) < ranks(); }
  int64_t bytes(size_t rank) const { return memory_[rank]->bytes(); }
  // Has the system find all memory of this process's ranks now: later than the initial values are in place, so that what held them
  // meanwhile can be had again.
  void Populate() const;

 private:
  void SetInitial(const Plan& plan);
  // The first rank of this process that holds it; ranks() where none does.
  size_t HolderOf(const StateTensor& state) const;

  std::vector<std::unique_ptr<ArenaMemory>> memory_;  // by rank; null: of another process
  std::vector<int> places_;                           // by rank
};

}  // namespace gradloom
