// The groups of a plan whose ranks are devices, and the pairs of ranks in different processes that send to each other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/exec/device_memory.h"

namespace gradloom {

class DeviceGroups {
 public:
  // `communicator`: null if all ranks are in this process; it must outlive this. With other processes, joins all groups in the same order
  // everywhere, since processes that joined two groups in different orders would wait for each other. `before_abort` destroys the graphs
  // that contain collectives of the groups, which end the running ones. Throws Error(kDevice, kPeer).
  DeviceGroups(const Plan& plan, DeviceMemories& memories, Communicator* communicator, std::function<void()> before_abort);

  // Whether the groups and pairs of `plan`, which extends this plan, are those of this plan.
  bool Serve(const Plan& plan) const;
  const std::vector<int>& RanksOf(int group) const { return ranks_[static_cast<size_t>(group)]; }
  // The group, which must have a member in this process. Throws Error(kDevice) if making it fails.
  DeviceGroup& Of(int group);
  // The group of ranks `from` and `to`, one of which is in another process. A send is a broadcast from the first to the second.
  DeviceGroup& Between(size_t from, size_t to);

  // Runs `enqueue`, which enqueues a step, on this thread. With other processes, another thread watches it: a launch may wait on the host,
  // for a place in the queue of its stream or for the load of its code, and so behind a collective whose members are gone. If the job has
  // failed and nothing has been enqueued for a second, the groups are ended as by Abort, which ends such waits. Then throws Error(kPeer).
  void Watched(const std::function<void()>& enqueue);
  // Another instruction has been enqueued.
  void NoteProgress() { progress_.fetch_add(1, std::memory_order_relaxed); }

  // For an error while a step is enqueued: throws Error(kPeer) instead if the job reports within a moment that a process is gone. NCCL may
  // notice this first, and does not know which process.
  void Explain(const Error& error) const;

  // Ends what has been enqueued for the groups, after an error: it may wait for members that never come, and memory can be freed only when
  // nothing runs any more. Groups within this process are made again when they are needed, the others cannot be used afterwards. Then waits
  // for all other work of the devices. If only a part of a step has been enqueued, no stream that is waited for later waits for it, and the
  // next run writes the memory that it uses.
  //
  // If a device has failed, other devices may wait for its events, which nothing can end. If they still do so after ten seconds, all are
  // abandoned (Device::Abandon), and nothing can run any more.
  void Abort() noexcept;
  bool abandoned() const { return abandoned_; }

  // Waits until the stream of a device has done all enqueued work. Throws Error(kDevice) if a device of this process has failed, for which
  // the stream may wait. With other processes: throws Error(kPeer) as soon as the job has failed or takes too long, and Error(kDevice) like
  // DeviceGroup::Check; nothing can run any more then. Before it throws, it does what Abort does.
  void Await(Device& device, void* stream);
  // The same for several streams; returns when one of them is done.
  struct PendingStream {
    Device* device = nullptr;
    void* stream = nullptr;
  };
  void AwaitAny(std::span<const PendingStream> streams);
  // Waits until a device of this process has done what is enqueued on a stream that only copies, so that the memory it reads is free again.
  // Returns at once if the device has failed, which reads nothing any more, and after ten seconds if it waits for another one that has.
  void AwaitCopies(Device& device, void* stream) const noexcept;

 private:
  // An index into Plan::groups and -1, or sender and receiver.
  using Key = std::pair<int, int>;

  void Watch(std::span<const PendingStream> streams) const;
  // Throws Error(kDevice) if a device of this process has failed.
  void CheckDevices() const;
  bool HasFailedDevice() const noexcept;
  // Ends all groups at once, as a group waits for the end of the graph that contains its collectives, which does not come before the
  // collectives of the other groups have been aborted. Returns false if that took too long, which it may after a failure.
  bool AbortGroups() noexcept;
  // Null if this process has no member. `id` counts groups, then pairs.
  std::unique_ptr<DeviceGroup> Make(const std::vector<int>& ranks, size_t id);

  std::vector<std::vector<int>> ranks_;      // indexed as Plan::groups
  std::set<std::pair<int, int>> transfers_;  // with other processes: sender and receiver
  DeviceMemories& memories_;
  Communicator* const communicator_;
  const std::function<void()> before_abort_;
  std::map<Key, std::shared_ptr<DeviceGroup>> groups_;
  bool several_ = false;                // whether this process has ranks on several devices
  std::atomic<uint64_t> progress_ = 0;  // the number of instructions enqueued
  std::mutex abort_mutex_;              // the watch and the thread that it watches may both find the failure
  bool abandoned_ = false;
};

}  // namespace gradloom
