// The memory of a plan's ranks on their devices.
#pragma once

#include <array>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/exec/executor.h"

namespace gradloom {

// One block of a device's memory, or of pinned host memory.
class DeviceArena {
 public:
  DeviceArena() = default;
  // Allocates zeroed memory. Throws Error(kResource) naming `what`.
  DeviceArena(std::shared_ptr<Device> device, int64_t bytes, const char* what);
  ~DeviceArena();
  DeviceArena(DeviceArena&& other) noexcept;
  DeviceArena& operator=(DeviceArena&& other) noexcept;

  std::byte* at(int64_t offset) const { return data_ + offset; }
  int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Device> device_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Host memory for copies: pinned, or plain if pinned memory is not wanted or not available.
class StagingMemory {
 public:
  StagingMemory() = default;
  StagingMemory(std::shared_ptr<Device> device, int64_t bytes, bool pin);
  ~StagingMemory();
  StagingMemory(StagingMemory&& other) noexcept;
  StagingMemory& operator=(StagingMemory&& other) noexcept;

  std::byte* at(int64_t offset) const { return data_ + offset; }
  bool pinned() const { return device_ != nullptr; }
  // Whether it was to be pinned, but the system has refused that.
  bool refused() const { return refused_; }

 private:
  std::shared_ptr<Device> device_;  // null: plain memory
  std::vector<std::byte> plain_;
  std::byte* data_ = nullptr;
  bool refused_ = false;
};

// Constants of a plan that are in one block of memory. Each extension of the plan has a block of its own, so that those before it stay
// where they are.
struct DeviceConstants {
  int64_t begin = 0;  // offset of the block in the plan's constants
  DeviceArena memory;
};

// The memory of a rank on its device.
struct RankMemory {
  std::shared_ptr<Device> device;
  std::vector<DeviceConstants> constants;  // by ascending offset
  DeviceArena step;
  DeviceArena transient, inputs;  // only while steps run
  StagingMemory host_step;
  std::array<StagingMemory, 2> host_inputs;     // by slot
  int64_t transient_bytes = 0, slot_bytes = 0;  // the maximum over all entries

  int64_t constants_bytes() const;
};

// The pairs of sender and receiver in all entries, ordered by rank.
std::set<std::pair<int, int>> TransfersOf(const Plan& plan);

class DeviceMemories {
 public:
  // Opens the devices of the ranks `own`. Throws Error(kDevice, kResource, kPlan), kDevice also if a device has another kind than the
  // plan's.
  DeviceMemories(const Plan& plan, const ExecutorOptions& options, RankRange own, std::shared_ptr<StateArena> state);

  // The address of a buffer in steps that use this slot; null for a feed.
  std::byte* Address(const Buffer& buffer, size_t rank, int slot) const;

  void AllocateTransient();
  void ReleaseTransient();
  bool has_transient() const { return has_transient_; }

  // Whether `plan` needs more memory for steps than there is now, on any rank of any process.
  bool Grows(const Plan& plan) const;
  // Continues with `plan`, which extends `before` and has the same states. If it Grows, the memory of steps must have been released: the
  // larger one replaces it. Throws Error(kResource), and then the memory is that of `before`.
  void Extend(const Plan& plan, const Plan& before);

  size_t ranks() const { return ranks_.size(); }  // of the plan
  bool holds(size_t rank) const { return own_.contains(static_cast<int>(rank)); }
  // Whether one of the two ranks is in this process and the other is not.
  bool Apart(int a, int b) const { return own_.contains(a) != own_.contains(b); }
  // The ranks of this process, which has no memory of others.
  size_t first() const { return static_cast<size_t>(own_.first); }
  size_t last() const { return static_cast<size_t>(own_.last); }  // past the last
  // Whether a refused step changes nothing. This does not hold with ranks in other processes: they are not told before the step has ended,
  // so all update alike and the job ends.
  bool keeps_state() const { return first() == 0 && last() == ranks(); }
  // Whether the system has refused pinned memory, so that copies between the host and a device go through pageable memory.
  bool lacks_pinned_memory() const;
  // The device of the first of them.
  Device& device() const { return *ranks_[first()].device; }
  RankMemory& rank(size_t rank) { return ranks_[rank]; }
  const RankMemory& rank(size_t rank) const { return ranks_[rank]; }
  const std::shared_ptr<StateArena>& state() const { return state_; }

 private:
  // Bytes of a step by rank, the maximum over all entries.
  struct StepSizes {
    std::vector<int64_t> transient, slot;
  };
  StepSizes SizesOf(const Plan& plan) const;
  void SetSizes(const StepSizes& sizes);
  // Throws Error(kResource), with what would fit, if what the plan needs besides the memory that is already allocated does not fit.
  void CheckCapacity(const Plan& plan) const;
  // The number of communicators that a rank of this process is in.
  int64_t CommunicatorsOf(const Plan& plan, size_t rank) const;
  // The constants of a rank from index `first` on, which are at the offset `begin` or later.
  DeviceConstants AllocateConstants(const Plan& plan, size_t rank, size_t first, int64_t begin) const;

  bool pin_;
  RankRange own_;
  bool has_transient_ = false;
  std::vector<RankMemory> ranks_;
  std::shared_ptr<StateArena> state_;
};

}  // namespace gradloom
