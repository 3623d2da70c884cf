// The memory of a plan's ranks on their devices.
#pragma once

#include <array>
#include <memory>
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

 private:
  std::shared_ptr<Device> device_;  // null: plain memory
  std::vector<std::byte> plain_;
  std::byte* data_ = nullptr;
};

// The memory of a rank on its device.
struct RankMemory {
  std::shared_ptr<Device> device;
  DeviceArena constants, step;
  DeviceArena transient, inputs;  // only while steps run
  StagingMemory host_step;
  std::array<StagingMemory, 2> host_inputs;     // by slot
  int64_t transient_bytes = 0, slot_bytes = 0;  // the maximum over all entries
};

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

  size_t ranks() const { return ranks_.size(); }  // of the plan
  bool holds(size_t rank) const { return own_.contains(static_cast<int>(rank)); }
  // The ranks of this process, which has no memory of others.
  size_t first() const { return static_cast<size_t>(own_.first); }
  size_t last() const { return static_cast<size_t>(own_.last); }  // past the last
  // Whether a refused step changes nothing. This does not hold with ranks in other processes: they are not told before the step has ended,
  // so all update alike and the job ends.
  bool keeps_state() const { return first() == 0 && last() == ranks(); }
  // The device of the first of them.
  Device& device() const { return *ranks_[first()].device; }
  RankMemory& rank(size_t rank) { return ranks_[rank]; }
  const RankMemory& rank(size_t rank) const { return ranks_[rank]; }
  const std::shared_ptr<StateArena>& state() const { return state_; }

 private:
  // Throws Error(kResource), with what would fit, if the plan does not fit.
  void CheckCapacity(const Plan& plan) const;

  bool pin_;
  RankRange own_;
  bool has_transient_ = false;
  std::vector<RankMemory> ranks_;
  std::shared_ptr<StateArena> state_;
};

}  // namespace gradloom
