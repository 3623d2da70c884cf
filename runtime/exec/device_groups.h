// The groups of a plan whose ranks are devices, and the pairs that send to each other over processes.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/exec/device_memory.h"

namespace gradloom {

class DeviceGroups {
 public:
  // `communicator` null: all ranks are here. What is given is kept. With other processes it meets them in each group, in one order
  // everywhere: those that come to two groups in different orders would wait for each other. `before_abort` destroys the graphs that have
  // collectives of the groups: those that run now end with them. Throws Error(kDevice, kPeer).
  DeviceGroups(const Plan& plan, DeviceMemories& memories, Communicator* communicator, std::function<void()> before_abort);

  // A member is here. Throws Error(kDevice) where it is made now.
  DeviceGroup& Of(int group);
  // Ranks `from` and `to`, of which one is of another process. What is sent is a broadcast of the first to the second.
  DeviceGroup& Between(size_t from, size_t to);

  // Of an error on the way to a step: throws Error(kPeer) instead, where the job says within a moment that a process is gone. NCCL may know
  // of it first, and knows no name.
  void Explain(const Error& error) const;

  // Returns when the stream of a device has done all that was enqueued. With other processes: throws Error(kPeer) as soon as the job has
  // failed or takes too long, Error(kDevice) as DeviceGroup::Check. What was enqueued is ended then, and nothing can be run any more.
  void Await(Device& device, void* stream);
  // The same of several streams: returns when one of them has.
  struct Awaited {
    Device* device = nullptr;
    void* stream = nullptr;
  };
  void AwaitAny(std::span<const Awaited> streams);

 private:
  // An index into Plan::groups and -1, or sender and receiver.
  using Key = std::pair<int, int>;

  void Watch(std::span<const Awaited> streams) const;
  void Abort() noexcept;
  // Null where no member is here. `id` counts groups, then pairs.
  std::unique_ptr<DeviceGroup> Make(const std::vector<int>& ranks, size_t id);

  const Plan& plan_;
  DeviceMemories& memories_;
  Communicator* const communicator_;
  const std::function<void()> before_abort_;
  std::map<Key, std::unique_ptr<DeviceGroup>> groups_;
};

}  // namespace gradloom
