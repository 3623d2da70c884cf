#include "runtime/exec/device_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/checked.h"

namespace gradloom {
namespace {

class DeviceArenaMemory : public ArenaMemory {
 public:
  DeviceArenaMemory(std::shared_ptr<Device> device, int64_t bytes) : device_(device), memory_(device, bytes, "state") {}
  std::byte* at(int64_t offset) const override { return memory_.at(offset); }
  int64_t bytes() const override { return memory_.bytes(); }
  void Read(int64_t offset, int64_t bytes, void* to) const override {
    device_->Copy(to, memory_.at(offset), bytes, nullptr);
    device_->Synchronize(nullptr);
  }
  void Write(int64_t offset, int64_t bytes, const void* from) override {
    device_->Copy(memory_.at(offset), from, bytes, nullptr);
    device_->Synchronize(nullptr);
  }

 private:
  std::shared_ptr<Device> device_;
  DeviceArena memory_;
};

std::string InMiB(int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

DevicePlatform& ThePlatform() {
  std::string why;
  DevicePlatform* const platform = CudaPlatform(&why);
  if (platform == nullptr) throw Error(ErrorCode::kDevice, "the plan is for CUDA devices, and there is no CUDA here: " + why);
  if (const std::string problem = platform->problem(); !problem.empty()) {
    throw Error(ErrorCode::kDevice, "the plan is for CUDA devices, and there is none here: " + problem);
  }
  return *platform;
}

}  // namespace

DeviceArena::DeviceArena(std::shared_ptr<Device> device, int64_t bytes, const char* what) : device_(std::move(device)), bytes_(bytes) {
  if (bytes == 0) return;
  try {
    data_ = device_->Allocate(bytes);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kResource) throw;
    throw Error(ErrorCode::kResource,
                "no memory on cuda:" + std::to_string(device_->ordinal()) + " for the " + what + " arena of " + InMiB(bytes) + "; " +
                    InMiB(device_->free_bytes()) + " are free",
                error.where(), "a smaller --batch, --recompute full, --memory-limit, or --precision bf16");
  }
  try {
    device_->Zero(data_, bytes, nullptr);
    device_->Synchronize(nullptr);
  } catch (...) {
    device_->Free(data_);
    throw;
  }
}

DeviceArena::~DeviceArena() {
  if (data_ != nullptr) device_->Free(data_);
}

DeviceArena::DeviceArena(DeviceArena&& other) noexcept { *this = std::move(other); }

DeviceArena& DeviceArena::operator=(DeviceArena&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

StagingMemory::StagingMemory(std::shared_ptr<Device> device, int64_t bytes, bool pin) {
  if (bytes == 0) return;
  if (pin) data_ = device->AllocatePinned(bytes);
  if (data_ != nullptr) {
    device_ = std::move(device);
    return;
  }
  plain_.resize(static_cast<size_t>(bytes));
  data_ = plain_.data();
}

StagingMemory::~StagingMemory() {
  if (device_ != nullptr) device_->FreePinned(data_);
}

StagingMemory::StagingMemory(StagingMemory&& other) noexcept { *this = std::move(other); }

StagingMemory& StagingMemory::operator=(StagingMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(plain_, other.plain_);
  std::swap(data_, other.data_);
  return *this;
}

DeviceMemories::DeviceMemories(const Plan& plan, const ExecutorOptions& options, std::shared_ptr<StateArena> state)
    : pin_(options.pin_memory), ranks_(plan.num_ranks()), state_(std::move(state)) {
  DevicePlatform& platform = ThePlatform();
  for (size_t r = 0; r < ranks_.size(); ++r) {
    ranks_[r].device = platform.Open(r < options.ordinals.size() ? options.ordinals[r] : static_cast<int>(r));
  }
  for (const Program& program : plan.programs) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (plan.PlaceOf(r) != program.place) continue;
      ranks_[r].transient_bytes = std::max(ranks_[r].transient_bytes, program.transient_bytes);
      ranks_[r].slot_bytes = std::max(ranks_[r].slot_bytes, AlignUp(program.input_bytes, kAlignmentBytes));
    }
  }
  if (state_ == nullptr) {
    state_ = std::make_shared<StateArena>(
        plan, [&](size_t rank, int64_t bytes) { return std::make_unique<DeviceArenaMemory>(ranks_[rank].device, bytes); });
  }
  for (size_t r = 0; r < ranks_.size(); ++r) {
    RankMemory& rank = ranks_[r];
    const int place = plan.PlaceOf(r);
    rank.constants = DeviceArena(rank.device, plan.places[static_cast<size_t>(place)].constants_bytes, "constants");
    for (const Constant& constant : plan.constants) {
      if (!constant.in_place(place)) continue;
      rank.device->Copy(rank.constants.at(constant.offset), constant.value.data(), constant.value.bytes(), nullptr);
    }
    rank.device->Synchronize(nullptr);
    rank.step = DeviceArena(rank.device, plan.step.bytes, "step");
    rank.host_step = StagingMemory(rank.device, plan.step.bytes, true);
  }
  TakeTransient();
}

void DeviceMemories::TakeTransient() {
  for (RankMemory& rank : ranks_) {
    rank.transient = DeviceArena(rank.device, rank.transient_bytes, "transient");
    rank.inputs = DeviceArena(rank.device, 2 * rank.slot_bytes, "input");
    for (StagingMemory& slot : rank.host_inputs) slot = StagingMemory(rank.device, rank.slot_bytes, pin_);
  }
  has_transient_ = true;
}

void DeviceMemories::ReleaseTransient() {
  for (RankMemory& rank : ranks_) {
    rank.transient = DeviceArena();
    rank.inputs = DeviceArena();
    for (StagingMemory& slot : rank.host_inputs) slot = StagingMemory();
  }
  has_transient_ = false;
}

std::byte* DeviceMemories::Address(const Buffer& buffer, size_t r, int slot) const {
  const RankMemory& rank = ranks_[r];
  switch (buffer.arena) {
    case Arena::kState: return state_->at(static_cast<int>(r), buffer.offset);
    case Arena::kConstants: return rank.constants.at(buffer.offset);
    case Arena::kTransient: return rank.transient.at(buffer.offset);
    case Arena::kStep: return rank.step.at(buffer.offset);
    case Arena::kInput: return rank.inputs.at(slot * rank.slot_bytes + buffer.offset);
    case Arena::kFeed: return nullptr;
  }
  return nullptr;
}

}  // namespace gradloom
