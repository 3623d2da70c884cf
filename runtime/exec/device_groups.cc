#include "runtime/exec/device_groups.h"

#include <algorithm>
#include <set>
#include <thread>

#include "runtime/comm/communicator.h"

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kWait[] = "what the GPUs do together";

constexpr auto kFailureNotice = std::chrono::seconds(5);

// The pairs of sender and receiver in all entries, ordered by rank.
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

}  // namespace

DeviceGroups::DeviceGroups(const Plan& plan, DeviceMemories& memories, Communicator* communicator, std::function<void()> before_abort)
    : plan_(plan), memories_(memories), communicator_(communicator), before_abort_(std::move(before_abort)) {
  if (communicator == nullptr) return;
  int id = 0;
  for (const Group& group : plan.groups) {
    groups_[{id, -1}] = Make(group.ranks, static_cast<size_t>(id));
    ++id;
  }
  for (const auto& [from, to] : TransfersOf(plan)) {
    const auto pair = static_cast<size_t>(id++);
    if (memories.holds(static_cast<size_t>(from)) != memories.holds(static_cast<size_t>(to))) groups_[{from, to}] = Make({from, to}, pair);
  }
}

std::unique_ptr<DeviceGroup> DeviceGroups::Make(const std::vector<int>& ranks, size_t id) {
  std::vector<Device*> devices;
  DistributedGroup distributed{.size = static_cast<int>(ranks.size())};
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto rank = static_cast<size_t>(ranks[i]);
    if (!memories_.holds(rank)) continue;
    devices.push_back(memories_.rank(rank).device.get());
    distributed.positions.push_back(static_cast<int>(i));
  }
  if (devices.empty()) return nullptr;
  if (devices.size() == ranks.size()) return CudaPlatform()->NewGroup(devices);
  const bool gives = distributed.positions.front() == 0;
  distributed.id = communicator_->ShareInGroup(id, ranks, memories_.ranks(), gives ? CudaPlatform()->NewGroupId() : "");
  distributed.waiting = [this](Clock::time_point& since) { communicator_->CheckWait(since, kWait); };
  try {
    return CudaPlatform()->JoinGroup(devices, distributed);
  } catch (const Error& error) {
    Explain(error);
    throw;
  }
}

void DeviceGroups::Explain(const Error& error) const {
  if (communicator_ == nullptr || error.code() != ErrorCode::kDevice) return;
  for (const Clock::time_point begin = Clock::now(); Clock::now() - begin < kFailureNotice;) {
    communicator_->ThrowIfFailed();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

DeviceGroup& DeviceGroups::Of(int group) {
  std::unique_ptr<DeviceGroup>& made = groups_[{group, -1}];
  if (made == nullptr) made = Make(plan_.groups[static_cast<size_t>(group)].ranks, 0);
  return *made;
}

DeviceGroup& DeviceGroups::Between(size_t from, size_t to) { return *groups_.at({static_cast<int>(from), static_cast<int>(to)}); }

void DeviceGroups::Await(Device& device, void* stream) {
  const PendingStream one[] = {{&device, stream}};
  AwaitAny(one);
}

void DeviceGroups::AwaitAny(std::span<const PendingStream> streams) {
  try {
    if (communicator_ == nullptr && streams.size() == 1) return streams[0].device->Synchronize(streams[0].stream);
    Watch(streams);
  } catch (const Error& error) {
    Abort();
    Explain(error);
    throw;
  }
}

// Aborts all groups at once: a group waits for the end of the graph that contains its collectives, which does not come before the
// collectives of the other groups have been aborted.
void DeviceGroups::Abort() noexcept {
  if (groups_.empty()) return;
  before_abort_();
  std::vector<std::thread> aborts;
  for (const auto& [key, group] : groups_) {
    if (group != nullptr) aborts.emplace_back([&group = *group] { group.Abort(); });
  }
  for (std::thread& abort : aborts) abort.join();
  if (communicator_ == nullptr) groups_.clear();
}

void DeviceGroups::Watch(std::span<const PendingStream> streams) const {
  const Clock::time_point begin = Clock::now();
  const auto done = [](const PendingStream& awaited) { return awaited.device->Done(awaited.stream); };
  for (Clock::time_point since = begin; std::none_of(streams.begin(), streams.end(), done);) {
    if (communicator_ != nullptr) {
      communicator_->CheckWait(since, kWait);
      for (const auto& [key, group] : groups_) {
        if (group != nullptr) group->Check();
      }
    }
    // Spins for a short time for the sake of short steps, then sleeps so that long ones do not occupy a core.
    if (Clock::now() - begin < std::chrono::milliseconds(1)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

}  // namespace gradloom
