// Feeds the streams of all ranks with a step.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "runtime/exec/device_groups.h"
#include "runtime/exec/device_prepare.h"

namespace gradloom {

// All work begins behind the origin, a stream of the first rank of this process, and ends there. One thread feeds all streams, so that an
// instruction is enqueued when everything that it meets is there: a wait behind its record, a collective when all members have come to it.
class DeviceIssuer {
 public:
  // `communicator` to the other processes that run the plan, or null.
  DeviceIssuer(const Plan& plan, DeviceMemories& memories, Communicator* communicator);

  void* origin() const { return origin_.get(); }
  // Returns when the step that was enqueued, or launched as a graph, has ended. Throws as DeviceGroups::Await.
  void Await();
  // Recorded where a rank begins its step, where that is timed.
  void* begin(size_t rank) const { return begin_[rank].get(); }

  // Enqueues a step. `timed`: with a timed event before and behind each instruction. Throws Error(kDevice) naming the instruction.
  void Issue(DeviceEntry& entry, int slot, bool timed);
  // The same as a graph.
  std::unique_ptr<DeviceGraph> Capture(DeviceEntry& entry, int slot);

  // Random delays before instructions from now on.
  void SetChaos(uint64_t seed);
  bool chaotic() const { return chaotic_; }

 private:
  // A stream of a rank, and how far it is.
  struct Lane {
    size_t rank = 0;
    std::vector<DeviceInstruction>* instructions = nullptr;
    size_t next = 0;
    void* stream = nullptr;
    bool done() const { return next == instructions->size(); }
    DeviceInstruction& front() const { return (*instructions)[next]; }
  };

  void Fork(DeviceEntry& entry, bool timed);
  void IssueLanes(DeviceEntry& entry, int slot, bool timed);
  void Join(DeviceEntry& entry, int slot);
  // Enqueues the lane's next instruction if it can be; false: not yet.
  bool Advance(Lane& lane, DeviceEntry& entry, int slot, bool timed);
  bool Meet(Lane& lane, int slot, bool timed);
  bool Transfer(Lane& lane, int slot, bool timed);
  // The side of a transfer that is here, with another process.
  void TransferOver(Lane& lane, int slot, bool timed);
  void Enqueue(Lane& lane, int slot, bool timed);
  void Begin(Lane& lane, bool timed);
  void End(Lane& lane, bool timed);
  void* StreamOf(size_t rank, size_t stream);

  const Plan& plan_;
  DeviceMemories& memories_;
  DeviceStream origin_;
  DeviceEvent forked_;
  std::vector<DeviceEvent> begin_;                  // by rank
  std::vector<std::vector<DeviceStream>> streams_;  // by rank, by stream of a program
  std::vector<std::vector<DeviceEvent>> joined_;    // the same
  DeviceGroups groups_;
  std::map<std::pair<size_t, size_t>, std::pair<DeviceEvent, DeviceEvent>> transfers_;  // by sender and receiver: sent, taken
  std::vector<Lane> lanes_;                                                             // of the step that is being enqueued
  std::vector<std::vector<bool>> recorded_;                                             // by rank and event
  bool chaotic_ = false;
  std::mt19937_64 random_;
};

}  // namespace gradloom
