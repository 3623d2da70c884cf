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

// Adds a tensor of the same type and shape, float32 or float64.
void AddTo(Tensor& sum, const TensorView& part);

// Takes zeroed memory for a rank. Throws Error(kResource).
using TakeArena = std::function<std::unique_ptr<ArenaMemory>(size_t rank, int64_t bytes)>;

// The state arenas of a plan's ranks: parameters, optimizer state, statistics. Executors of plans with the same
// state table, places and ranks can share them.
class StateArena {
 public:
  // Of the ranks `own`, with every tensor at its initial value.
  StateArena(const Plan& plan, const TakeArena& take, RankRange own);

  // A copy in logical order, from the first of these ranks that holds it; of a partial state the sum of these ranks' parts. Throws
  // Error(kPlan) where none of them holds it.
  Tensor Get(const StateTensor& state) const;
  // A copy in logical order of what one of these ranks holds.
  Tensor GetOf(size_t rank, const StateTensor& state) const;
  // On all ranks that hold it; of a partial state on the first rank of the plan that does, and zeros on the others. Throws Error(kShape)
  // where dtype or shape differ.
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
  bool holds(size_t rank, const StateTensor& state) const { return holds(rank) && state.in_place(places_[rank]); }
  // The first rank of this process that holds it; ranks() where none does.
  size_t HolderOf(const StateTensor& state) const;

  std::vector<std::unique_ptr<ArenaMemory>> memory_;  // by rank; null: of another process
  std::vector<int> places_;                           // by rank
};

}  // namespace gradloom
