// The state of a plan's ranks between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/comm/rank_range.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// The memory of one arena on a rank's device.
class ArenaMemory {
 public:
  virtual ~ArenaMemory() = default;
  virtual std::byte* at(int64_t offset) const = 0;  // an address of the device
  virtual int64_t bytes() const = 0;
  // Whether at() is private memory of this process, in which several threads may write at once.
  virtual bool own_host_memory() const { return false; }
  // Makes the system allocate all physical memory now, where that is possible (HostArena::Populate).
  virtual void Populate() {}
  // Copy to and from host memory, and wait for the end of the copy.
  virtual void Read(int64_t offset, int64_t bytes, void* to) const = 0;
  virtual void Write(int64_t offset, int64_t bytes, const void* from) = 0;
  // Whether other processes write it, too.
  virtual bool written_by_others() const { return false; }
};

// Adds `part` to `sum`; both have the same shape and type, float32 or float64.
void AddTo(Tensor& sum, const TensorView& part);

// Allocates zeroed memory for a rank. Throws Error(kResource).
using AllocateArena = std::function<std::unique_ptr<ArenaMemory>(size_t rank, int64_t bytes)>;

// The state arenas of a plan's ranks: parameters, optimizer state, statistics. Executors of plans with the same
// state table, places and ranks can share them.
class StateArena {
 public:
  // Allocates for the ranks `own`, with every tensor at its initial value.
  StateArena(const Plan& plan, const AllocateArena& take, RankRange own);

  // A copy in logical order from the first of these ranks that holds it; for a partial state, the sum of these ranks' parts. Throws
  // Error(kPlan) if none of them holds it.
  Tensor Get(const StateTensor& state) const;
  // A copy in logical order of the tensor, or part, that one of these ranks holds.
  Tensor GetOf(size_t rank, const StateTensor& state) const;
  // Sets it on all ranks that hold it, and a parameter's copies too; for a partial state, on the first rank of the plan that does, with
  // zeros on the others. Throws Error(kShape) if dtype or shape differ.
  void Set(const StateTensor& state, const TensorView& value);

  std::byte* at(int rank, int64_t offset) const { return memory_[static_cast<size_t>(rank)]->at(offset); }
  size_t ranks() const { return memory_.size(); }                     // of the plan
  bool holds(size_t rank) const { return memory_[rank] != nullptr; }  // of this process
  // Whether a rank of this process holds the tensor.
  bool holds(const StateTensor& state) const { return HolderOf(state) < ranks(); }
  int64_t bytes(size_t rank) const { return memory_[rank]->bytes(); }
  // Copy the whole arena of a rank of this process, as it is stored, to and from host memory: at() need not be an address of the host.
  void SaveArena(size_t rank, void* to) const { memory_[rank]->Read(0, bytes(rank), to); }
  void RestoreArena(size_t rank, const void* from) {
    NoteChange();
    memory_[rank]->Write(0, bytes(rank), from);
  }
  // A number that changes before any value does: by the functions above, and by what a step writes, for which its executor calls
  // NoteChange. It says nothing about what other processes write.
  int64_t version() const { return version_; }
  void NoteChange() { ++version_; }
  // Whether other processes write values, too, at any time.
  bool written_by_others() const;
  // Makes the system allocate all physical memory of this process's ranks now: after the initial values are in place, so that their former
  // memory can be reused.
  void Populate() const;

 private:
  void SetInitial(const Plan& plan);
  void Write(const StateTensor& state, const TensorView& value);
  bool holds(size_t rank, const StateTensor& state) const { return holds(rank) && state.in_place(places_[rank]); }
  // The first rank of this process that holds it; ranks() if none does.
  size_t HolderOf(const StateTensor& state) const;

  std::vector<std::unique_ptr<ArenaMemory>> memory_;  // by rank; null: of another process
  std::vector<int> places_;                           // by rank
  std::multimap<std::string, StateTensor> copies_;    // by parameter
  int64_t version_ = 0;
};

}  // namespace gradloom
