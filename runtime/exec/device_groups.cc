#include "runtime/exec/device_groups.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <thread>

#include "runtime/comm/communicator.h"

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kWait[] = "what the GPUs do together";

constexpr auto kFailureNotice = std::chrono::seconds(5);

// How often the other devices of this process are asked whether they have failed, while a step is waited for.
constexpr auto kCheckInterval = std::chrono::milliseconds(10);
// How long nothing is enqueued before the thread that enqueues counts as blocked.
constexpr auto kBlockedLimit = std::chrono::seconds(1);
// How long the devices have to end their work after one of them has failed.
constexpr auto kEndLimit = std::chrono::seconds(10);

}  // namespace

DeviceGroups::DeviceGroups(const Plan& plan, DeviceMemories& memories, Communicator* communicator, std::function<void()> before_abort)
    : memories_(memories), communicator_(communicator), before_abort_(std::move(before_abort)) {
  for (const Group& group : plan.groups) ranks_.push_back(group.ranks);
  if (communicator != nullptr) transfers_ = TransfersOf(plan);
  for (size_t rank = memories.first(); rank < memories.last(); ++rank)
    several_ = several_ || memories.rank(rank).device->ordinal() != memories.device().ordinal();
  if (communicator == nullptr) return;
  int id = 0;
  for (const std::vector<int>& ranks : ranks_) {
    groups_[{id, -1}] = Make(ranks, static_cast<size_t>(id));
    ++id;
  }
  for (const auto& [from, to] : transfers_) {
    const auto pair = static_cast<size_t>(id++);
    if (memories_.Apart(from, to)) groups_[{from, to}] = Make({from, to}, pair);
  }
}

// The answer is the same in all processes, which have to make new groups together.
bool DeviceGroups::Serve(const Plan& plan) const {
  return plan.groups.size() == ranks_.size() && (communicator_ == nullptr || TransfersOf(plan) == transfers_);
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
  std::shared_ptr<DeviceGroup>& made = groups_[{group, -1}];
  if (made == nullptr) made = Make(RanksOf(group), 0);
  return *made;
}

DeviceGroup& DeviceGroups::Between(size_t from, size_t to) { return *groups_.at({static_cast<int>(from), static_cast<int>(to)}); }

void DeviceGroups::Await(Device& device, void* stream) {
  const PendingStream one[] = {{&device, stream}};
  AwaitAny(one);
}

void DeviceGroups::AwaitAny(std::span<const PendingStream> streams) {
  try {
    if (communicator_ == nullptr && streams.size() == 1 && !several_) return streams[0].device->Synchronize(streams[0].stream);
    Watch(streams);
  } catch (const Error& error) {
    Abort();
    Explain(error);
    throw;
  }
}

void DeviceGroups::AwaitCopies(Device& device, void* stream) const noexcept {
  try {
    if (!several_) return device.Synchronize(stream);
    for (Clock::time_point failed = Clock::time_point::max(); !device.Done(stream);) {
      const Clock::time_point now = Clock::now();
      if (failed == Clock::time_point::max() && HasFailedDevice()) failed = now;
      if (failed != Clock::time_point::max() && now - failed > kEndLimit) return;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  } catch (const Error&) {
    // The next run reports it.
  }
}

void DeviceGroups::CheckDevices() const {
  for (size_t rank = memories_.first(); several_ && rank < memories_.last(); ++rank) memories_.rank(rank).device->Check();
}

bool DeviceGroups::HasFailedDevice() const noexcept {
  try {
    CheckDevices();
  } catch (const Error&) {
    return true;
  }
  return false;
}

void DeviceGroups::Watched(const std::function<void()>& enqueue) {
  if (communicator_ == nullptr) return enqueue();
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::exception_ptr failure;
  std::thread watch([&] {
    uint64_t enqueued = progress_;
    Clock::time_point moved = Clock::now(), since = moved;
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, kCheckInterval, [&] { return over; })) {
      const Clock::time_point now = Clock::now();
      if (const uint64_t count = progress_; count != enqueued) {
        enqueued = count;
        moved = since = now;
      }
      try {
        communicator_->CheckWait(since, kWait);
      } catch (const Error&) {
        if (now - moved < kBlockedLimit) continue;
        failure = std::current_exception();
        Abort();
        return;
      }
    }
  });
  const auto end = [&] {
    {
      const std::lock_guard lock(mutex);
      over = true;
    }
    changed.notify_one();
    watch.join();
  };
  try {
    enqueue();
  } catch (...) {
    end();
    throw;
  }
  end();
  if (failure != nullptr) std::rethrow_exception(failure);
}

void DeviceGroups::Abort() noexcept {
  const std::lock_guard lock(abort_mutex_);
  if (abandoned_) return;
  const bool ended = AbortGroups();
  const auto idle = [this] {
    for (size_t rank = memories_.first(); rank < memories_.last(); ++rank) {
      if (!memories_.rank(rank).device->Idle()) return false;
    }
    return true;
  };
  // Without a failed device, everything that has been enqueued ends: it waits for no member of a group any more.
  for (Clock::time_point failed = Clock::time_point::max(); ended;) {
    if (idle()) return;
    const Clock::time_point now = Clock::now();
    if (failed == Clock::time_point::max() && HasFailedDevice()) failed = now;
    if (failed != Clock::time_point::max() && now - failed > kEndLimit) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  abandoned_ = true;
  for (size_t rank = memories_.first(); rank < memories_.last(); ++rank) memories_.rank(rank).device->Abandon();
}

bool DeviceGroups::AbortGroups() noexcept {
  if (groups_.empty()) return true;
  // The threads own it together with this function, which may give up earlier.
  struct Ends {
    std::mutex mutex;
    std::condition_variable changed;
    size_t left = 0;
  };
  const auto ends = std::make_shared<Ends>();
  std::unique_lock lock(ends->mutex);
  for (const auto& [key, made] : groups_) {
    if (made == nullptr) continue;
    ++ends->left;
    std::thread([ends, group = made]() mutable {
      group->Abort();
      group.reset();
      const std::lock_guard ending(ends->mutex);
      --ends->left;
      ends->changed.notify_one();
    }).detach();
  }
  // Once the collectives are ended: a thread that waits behind one, in a launch, may hold what this needs.
  lock.unlock();
  before_abort_();
  lock.lock();
  for (Clock::time_point failed = Clock::time_point::max(); ends->left > 0;) {
    ends->changed.wait_for(lock, std::chrono::milliseconds(100));
    if (failed == Clock::time_point::max() && HasFailedDevice()) failed = Clock::now();
    if (failed != Clock::time_point::max() && Clock::now() - failed > kEndLimit) break;
  }
  const bool ended = ends->left == 0;
  if (communicator_ == nullptr) groups_.clear();
  return ended;
}

void DeviceGroups::Watch(std::span<const PendingStream> streams) const {
  // Without other processes this is a core that nobody else of the job needs.
  const std::chrono::milliseconds spins(communicator_ == nullptr ? 20 : 1);
  const Clock::time_point begin = Clock::now();
  Clock::time_point checked = begin;
  const auto done = [](const PendingStream& awaited) { return awaited.device->Done(awaited.stream); };
  for (Clock::time_point since = begin; std::none_of(streams.begin(), streams.end(), done);) {
    const Clock::time_point now = Clock::now();
    const bool due = now - checked > kCheckInterval;
    if (communicator_ != nullptr) communicator_->CheckWait(since, kWait);
    for (const auto& [key, group] : groups_) {
      if (group != nullptr && (due || communicator_ != nullptr)) group->Check();
    }
    if (due) {
      CheckDevices();
      checked = now;
    }
    // Spins for a short time for the sake of short steps, then sleeps so that long ones do not occupy a core.
    if (now - begin < spins) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

}  // namespace gradloom
