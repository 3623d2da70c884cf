// Feeds the streams of all ranks with a step.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "runtime/exec/device_groups.h"
#include "runtime/exec/device_prepare.h"

namespace gradloom {

// How a step is enqueued.
struct IssueOptions {
  int slot = 0;  // of its inputs
  // With a timed event before and behind each instruction of a program, not of its bodies. What is done together with devices of other
  // processes has them always.
  bool timed = false;
  bool pieces = false;  // what lies together in a stream goes as a graph where it has run before; for entries that decide
};

// All work begins behind the origin, a stream of the first rank of this process, and ends there. One thread feeds all streams, so that an
// instruction is enqueued when everything that it meets is there: a wait behind its record, a collective when all members have come to it.
//
// An if or a loop is decided here. Its operands are copied to the host on its stream; when they are there, the body that is due is
// enqueued on that stream, once more for each round of a loop. Until then the other streams, of all ranks, are fed as far as they go,
// so that a decision keeps nothing waiting but its own stream.
class DeviceIssuer {
 public:
  // `communicator` to the other processes that run the plan, or null; `before_abort` as in DeviceGroups.
  DeviceIssuer(const Plan& plan, DeviceMemories& memories, Communicator* communicator, std::function<void()> before_abort);

  void* origin() const { return origin_.get(); }
  // Returns when the step that was enqueued, or launched as a graph, has ended. Throws as DeviceGroups::Await.
  void Await();
  // Recorded where a rank begins its step, where that is timed.
  void* begin(size_t rank) const { return begin_[rank].get(); }

  // Enqueues a step; where it decides, waits for what it decides by. Throws Error(kDevice) naming the instruction.
  void Issue(DeviceEntry& entry, const IssueOptions& options);
  // The same as a graph, of an entry that decides nothing.
  std::unique_ptr<DeviceGraph> Capture(DeviceEntry& entry, int slot);
  // A loop that was to go on past its bound, and did not, in a step since the last call; null: there was none.
  const Instruction* TakeEndless() { return std::exchange(endless_, nullptr); }

  // Random delays before instructions from now on.
  void SetChaos(uint64_t seed);
  bool chaotic() const { return chaotic_; }

 private:
  enum class Progress : uint8_t { kNew, kAsked, kInBody };
  // A program's share of a stream, or a body, and how far it is. The rest is of the if or loop that is next.
  struct Frame {
    std::vector<DeviceInstruction>* instructions = nullptr;
    size_t next = 0;
    Progress progress = Progress::kNew;
    int64_t round = 0, rounds = 0;  // bodies that have been enqueued, and how many there are to be at most
    bool ends() const { return next == instructions->size(); }
  };
  // A stream of a rank: its program, then the bodies that it is in. None but the program is at its end.
  struct Lane {
    size_t rank = 0;
    void* stream = nullptr;
    std::vector<Frame> frames;
    bool done() const { return frames.front().ends(); }
    bool in_body() const { return frames.size() > 1; }
    DeviceInstruction& front() const { return (*frames.back().instructions)[frames.back().next]; }
    // In the program.
    int index() const { return (*frames.front().instructions)[frames.front().next].index; }
    bool asked() const { return !done() && frames.back().progress == Progress::kAsked; }
  };

  void Fork(DeviceEntry& entry);
  void IssueLanes(DeviceEntry& entry);
  void Join(DeviceEntry& entry);
  // Enqueues the lane's next instruction, or piece, if it can be; false: not yet.
  bool Advance(Lane& lane, DeviceEntry& entry);
  bool Meet(Lane& lane);
  bool Transfer(Lane& lane);
  // The side of a transfer that is here, with another process.
  void TransferOver(Lane& lane);
  void Enqueue(Lane& lane);
  void EnqueuePiece(Lane& lane);
  void EnqueueWork(const DeviceInstruction& prepared, const Lane& lane);
  bool Decide(Lane& lane);
  // Has what an if or a loop goes by copied to the host: all, or what a round may have changed.
  void Ask(Lane& lane, bool all);
  // The body that is due; null: none any more.
  std::vector<DeviceInstruction>* NextBody(Lane& lane);
  // Returns when a decision that nothing else can go on without has what it goes by.
  void AwaitAnswer();
  bool IsTimed(const Lane& lane) const { return (options_.timed || lane.front().apart) && !lane.in_body(); }
  void Begin(Lane& lane);
  void End(Lane& lane);
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
  // Of the step that is being enqueued.
  IssueOptions options_;
  std::vector<Lane> lanes_;
  std::vector<Lane*> order_;                 // those of a rank that have something left, by what is next
  std::vector<std::vector<bool>> recorded_;  // by rank and event
  const Instruction* endless_ = nullptr;
  bool chaotic_ = false;
  std::mt19937_64 random_;
};

}  // namespace gradloom
