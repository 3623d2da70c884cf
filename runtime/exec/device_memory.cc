#include "runtime/exec/device_memory.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
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

constexpr char kHelpWithoutGpu[] = "run it on a machine with such a GPU, or compile the model again for --devices cpu";
constexpr char kLessMemory[] = "--memory-limit to recompute activations, or --precision bf16";

DevicePlatform& ThePlatform() {
  std::string why;
  DevicePlatform* const platform = CudaPlatform(&why);
  if (platform == nullptr)
    throw Error(ErrorCode::kDevice, "the plan needs CUDA devices, but CUDA is not available: " + why, "", kHelpWithoutGpu);
  if (const std::string problem = platform->problem(); !problem.empty()) {
    throw Error(ErrorCode::kDevice, "the plan needs CUDA devices, but there are none: " + problem, "", kHelpWithoutGpu);
  }
  return *platform;
}

// Code that was compiled for one architecture does not run on another; it may not even be included.
void CheckTarget(const Plan& plan, DevicePlatform& platform, int ordinal) {
  const std::string& isa = plan.targets.front().isa;
  if (!isa.starts_with("sm_")) return;
  for (const DeviceProperties& device : platform.devices()) {
    const std::string mine = "sm_" + std::to_string(device.compute_major * 10 + device.compute_minor);
    if (device.ordinal != ordinal || mine == isa) continue;
    throw Error(ErrorCode::kPlan,
                "the plan was compiled for " + isa + ", but cuda:" + std::to_string(ordinal) + " (" + device.name + ") is " + mine, "",
                "compile the model for this device: --target " + mine);
  }
}

// What a device keeps free besides the memory that a plan states: at most half a gigabyte for the libraries' handles, code that is loaded
// when it first runs, and graphs; and the buffers of each communicator that a rank is in. Of a small device, an eighth.
constexpr int64_t kLibraryBytes = int64_t{512} << 20, kCommunicatorBytes = int64_t{128} << 20, kMostReserved = 8;

int64_t LargestBatch(const Plan& plan) {
  int64_t batch = 0;
  for (const Entry& entry : plan.entries) batch = std::max(batch, entry.batch);
  return batch;
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
                error.where(), "use a smaller --batch, " + std::string(kLessMemory));
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
  refused_ = pin;
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
  std::swap(refused_, other.refused_);
  return *this;
}

std::set<std::pair<int, int>> TransfersOf(const Plan& plan) {
  std::set<std::pair<int, int>> transfers;
  for (const Entry& entry : plan.entries) {
    for (size_t rank = 0; rank < entry.ranks.size(); ++rank) {
      for (const Instruction& instruction : plan.programs[static_cast<size_t>(entry.ranks[rank].program)].instructions) {
        if (instruction.kind != InstructionKind::kSend) continue;
        transfers.emplace(static_cast<int>(rank), entry.ranks[rank].peers[static_cast<size_t>(instruction.peer)]);
      }
    }
  }
  return transfers;
}

DeviceMemories::DeviceMemories(const Plan& plan, const ExecutorOptions& options, RankRange own, std::shared_ptr<StateArena> state)
    : pin_(options.pin_memory), own_(own), ranks_(plan.num_ranks()), state_(std::move(state)) {
  DevicePlatform& platform = ThePlatform();
  for (size_t r = first(); r < last(); ++r) {
    const int ordinal = r < options.ordinals.size() ? options.ordinals[r] : static_cast<int>(r - first());
    ranks_[r].device = platform.Open(ordinal);
    CheckTarget(plan, platform, ordinal);
  }
  std::vector<Device*> devices;
  for (size_t r = first(); r < last(); ++r) devices.push_back(ranks_[r].device.get());
  // Parts of a model exchange values by copies between devices.
  if (devices.size() > 1) platform.ConnectPeers(devices);
  if (devices.size() > 1 && keeps_state()) platform.ShareRefusals(devices);
  SetSizes(SizesOf(plan));
  CheckCapacity(plan);
  if (state_ == nullptr) {
    const auto take = [&](size_t rank, int64_t bytes) { return std::make_unique<DeviceArenaMemory>(ranks_[rank].device, bytes); };
    state_ = std::make_shared<StateArena>(plan, take, own);
  }
  for (size_t r = first(); r < last(); ++r) {
    RankMemory& rank = ranks_[r];
    rank.constants.push_back(AllocateConstants(plan, r, 0, 0));
    rank.step = DeviceArena(rank.device, plan.step.bytes, "step");
    rank.host_step = StagingMemory(rank.device, plan.step.bytes, true);
  }
  AllocateTransient();
}

int64_t RankMemory::constants_bytes() const {
  return std::accumulate(constants.begin(), constants.end(), int64_t{0},
                         [](int64_t sum, const DeviceConstants& part) { return sum + part.memory.bytes(); });
}

DeviceConstants DeviceMemories::AllocateConstants(const Plan& plan, size_t r, size_t first, int64_t begin) const {
  const std::shared_ptr<Device>& device = ranks_[r].device;
  const int place = plan.PlaceOf(r);
  DeviceConstants part{begin, DeviceArena(device, plan.places[static_cast<size_t>(place)].constants_bytes - begin, "constants")};
  for (size_t i = first; i < plan.constants.size(); ++i) {
    const Constant& constant = plan.constants[i];
    if (constant.in_place(place))
      device->Copy(part.memory.at(constant.offset - begin), constant.value.data(), constant.value.bytes(), nullptr);
  }
  device->Synchronize(nullptr);
  return part;
}

DeviceMemories::StepSizes DeviceMemories::SizesOf(const Plan& plan) const {
  StepSizes sizes{std::vector<int64_t>(ranks()), std::vector<int64_t>(ranks())};
  for (const Program& program : plan.programs) {
    for (size_t r = 0; r < ranks(); ++r) {
      if (plan.PlaceOf(r) != program.place) continue;
      sizes.transient[r] = std::max(sizes.transient[r], program.transient_bytes);
      sizes.slot[r] = std::max(sizes.slot[r], AlignUp(program.input_bytes, kAlignmentBytes));
    }
  }
  return sizes;
}

void DeviceMemories::SetSizes(const StepSizes& sizes) {
  for (size_t r = 0; r < ranks(); ++r) {
    ranks_[r].transient_bytes = sizes.transient[r];
    ranks_[r].slot_bytes = sizes.slot[r];
  }
}

bool DeviceMemories::Grows(const Plan& plan) const {
  const StepSizes sizes = SizesOf(plan);
  for (size_t r = 0; r < ranks(); ++r) {
    if (sizes.transient[r] > ranks_[r].transient_bytes || sizes.slot[r] > ranks_[r].slot_bytes) return true;
  }
  return false;
}

void DeviceMemories::Extend(const Plan& plan, const Plan& before) {
  const StepSizes sizes = SizesOf(before);
  SetSizes(SizesOf(plan));
  try {
    CheckCapacity(plan);
    std::vector<DeviceConstants> added;
    for (size_t r = first(); r < last(); ++r) {
      const int64_t begin = before.places[static_cast<size_t>(before.PlaceOf(r))].constants_bytes;
      added.push_back(AllocateConstants(plan, r, before.constants.size(), begin));
    }
    if (!has_transient_) AllocateTransient();
    for (size_t r = first(); r < last(); ++r) {
      DeviceConstants& part = added[r - first()];
      if (part.memory.bytes() > 0) ranks_[r].constants.push_back(std::move(part));
    }
  } catch (...) {
    // What a step of the old plan lacks now is allocated when it runs.
    SetSizes(sizes);
    if (!has_transient_) ReleaseTransient();
    throw;
  }
}

int64_t DeviceMemories::CommunicatorsOf(const Plan& plan, size_t r) const {
  const auto rank = static_cast<int>(r);
  const auto groups = std::count_if(plan.groups.begin(), plan.groups.end(), [&](const Group& group) {
    return group.ranks.size() > 1 && std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end();
  });
  // Each direction between two processes has its own (DeviceGroups::Between).
  const std::set<std::pair<int, int>> transfers = TransfersOf(plan);
  const auto directions = std::count_if(transfers.begin(), transfers.end(), [&](const std::pair<int, int>& t) {
    return (t.first == rank || t.second == rank) && Apart(t.first, t.second);
  });
  return groups + directions;
}

void DeviceMemories::CheckCapacity(const Plan& plan) const {
  // Several ranks may use the same device.
  struct Need {
    int64_t fixed = 0, by_batch = 0, reserve = kLibraryBytes, free = 0;
  };
  std::map<int, Need> needs;
  for (size_t r = first(); r < last(); ++r) {
    const Place& place = plan.places[static_cast<size_t>(plan.PlaceOf(r))];
    const RankMemory& rank = ranks_[r];
    Need& need = needs[rank.device->ordinal()];
    need.fixed += place.constants_bytes - rank.constants_bytes() + plan.step.bytes - rank.step.bytes();
    if (state_ == nullptr) need.fixed += place.state_bytes;
    if (!has_transient_) need.by_batch += rank.transient_bytes + 2 * rank.slot_bytes;
    need.reserve += CommunicatorsOf(plan, r) * kCommunicatorBytes;
    need.free = rank.device->free_bytes();
  }
  for (const auto& [ordinal, need] : needs) {
    const int64_t usable = need.free - std::min(need.reserve, need.free / kMostReserved);
    if (need.fixed + need.by_batch <= usable) continue;
    const int64_t batch = LargestBatch(plan);
    // The memory of a step grows in proportion to its samples, apart from buffers whose size does not depend on the batch.
    const auto fits = static_cast<int64_t>(static_cast<double>(batch) * static_cast<double>(usable - need.fixed) /
                                           static_cast<double>(std::max<int64_t>(need.by_batch, 1)));
    throw Error(ErrorCode::kResource,
                "cuda:" + std::to_string(ordinal) + " has " + std::to_string(need.free >> 20) + " MiB free, of which " +
                    InMiB(need.free - usable) + " are kept for libraries, but the plan needs " + InMiB(need.fixed) +
                    " for state and constants and " + InMiB(need.by_batch) + " for steps of " + std::to_string(batch) + " samples",
                "", "use " + (fits > 0 ? "--batch " + std::to_string(fits) + ", which fits, " : std::string()) + kLessMemory);
  }
}

void DeviceMemories::AllocateTransient() {
  ReleaseTransient();  // what an earlier call has left that ran out of memory
  for (size_t r = first(); r < last(); ++r) {
    RankMemory& rank = ranks_[r];
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

bool DeviceMemories::lacks_pinned_memory() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const RankMemory& rank) {
    const auto refused = [](const StagingMemory& memory) { return memory.refused(); };
    return refused(rank.host_step) || std::any_of(rank.host_inputs.begin(), rank.host_inputs.end(), refused);
  });
}

std::byte* DeviceMemories::Address(const Buffer& buffer, size_t r, int slot) const {
  const RankMemory& rank = ranks_[r];
  switch (buffer.arena) {
    case Arena::kState: return state_->at(static_cast<int>(r), buffer.offset);
    case Arena::kConstants: {
      auto part = rank.constants.rbegin();
      while (part->begin > buffer.offset) ++part;
      return part->memory.at(buffer.offset - part->begin);
    }
    case Arena::kTransient: return rank.transient.at(buffer.offset);
    case Arena::kStep: return rank.step.at(buffer.offset);
    case Arena::kInput: return rank.inputs.at(slot * rank.slot_bytes + buffer.offset);
    case Arena::kFeed: return nullptr;
  }
  return nullptr;
}

}  // namespace gradloom
