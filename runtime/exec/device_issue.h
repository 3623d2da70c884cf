// Enqueues a step on the streams of all ranks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "runtime/exec/device_groups.h"
#include "runtime/exec/device_prepare.h"
#include "runtime/exec/numerics.h"

namespace gradloom {

// How a step is enqueued.
struct IssueOptions {
  int slot = 0;       // input slot of the step
  int64_t step = -1;  // number of the update, for profilers; -1: none
  // Record a timed event before and after each instruction of a program, except in its bodies. Operations with devices of other processes
  // always have them.
  bool timed = false;
  NumericsLog* numerics = nullptr;  // if not null, looks at the numbers of each instruction, and waits for each
  bool pieces = false;              // launch adjacent work of a stream as a graph if it has run before; for entries with decisions
};

// All work begins after the origin, a stream of this process's first rank, and ends there. One thread feeds all streams. An instruction is
// enqueued once its dependencies are: a wait after its record, a collective when all members have reached it. What devices of several
// processes do together is enqueued in one order in all processes (communication_turns.h).
//
// An if or a loop is decided here. Its operands are copied to the host on its stream. When they have arrived, the chosen body is enqueued
// on that stream, again for each iteration of a loop. Meanwhile the other streams, of all ranks, are fed as far as they go, so a decision
// delays only its own stream.
class DeviceIssuer {
 public:
  // `communicator`: to the other processes that run the plan, or null. `before_abort`: as in DeviceGroups.
  DeviceIssuer(const Plan& plan, DeviceMemories& memories, Communicator* communicator, std::function<void()> before_abort);

  void* origin() const { return origin_.get(); }
  // Whether entries of `plan`, which extends this plan, can be enqueued as well: as DeviceGroups::Serve.
  bool Serves(const Plan& plan) const { return groups_.Serve(plan); }
  // Waits for the step that was enqueued, or launched as a graph. Throws like DeviceGroups::Await.
  void Await();
  // Waits for a stream that reads memory of the host: as DeviceGroups::AwaitCopies.
  void AwaitCopies(size_t rank, void* stream) const { groups_.AwaitCopies(*memories_.rank(rank).device, stream); }
  // The event at which a rank begins its step, if that is timed.
  void* begin(size_t rank) const { return begin_[rank].get(); }

  // Enqueues a step; waits for the values that decide branches and loops. Throws Error(kDevice) naming the instruction, and like
  // DeviceGroups::Watched.
  void Issue(DeviceEntry& entry, const IssueOptions& options);
  // Ends a step of which a part has been enqueued: as DeviceGroups::Abort.
  void Abort() noexcept { groups_.Abort(); }
  // Whether nothing can run any more, because a device has failed for which others wait: as DeviceGroups::abandoned.
  bool abandoned() const { return groups_.abandoned(); }
  // Captures a step as a graph, for an entry without decisions.
  std::unique_ptr<DeviceGraph> Capture(DeviceEntry& entry, int slot);
  // A loop that reached its bound and was stopped, in a step since the last call; null: there was none.
  const Instruction* TakeOverrunLoop() { return std::exchange(overrun_loop_, nullptr); }

  // From now on, delays instructions at random.
  void SetChaos(uint64_t seed);
  bool chaotic() const { return chaotic_; }

 private:
  enum class Progress : uint8_t { kNew, kAwaitingConditions, kInBody };
  // A program's part of a stream, or a body, and its progress. The other fields concern the if or loop that is next.
  struct Frame {
    std::vector<DeviceInstruction>* instructions = nullptr;
    size_t next = 0;
    Progress progress = Progress::kNew;
    int64_t round = 0, rounds = 0;  // number of bodies enqueued, and the largest number of them
    bool ends() const { return next == instructions->size(); }
  };
  // A stream of a rank: its program, then the bodies that it is in. No frame but the program's is at its end.
  struct Lane {
    size_t rank = 0;
    void* stream = nullptr;
    std::vector<Frame> frames;
    std::vector<ScannedValue> reads = {};  // of the instruction that is being enqueued, if the step looks at numbers
    bool done() const { return frames.front().ends(); }
    bool in_body() const { return frames.size() > 1; }
    DeviceInstruction& front() const { return (*frames.back().instructions)[frames.back().next]; }
    // Index in the program.
    int index() const { return (*frames.front().instructions)[frames.front().next].index; }
    bool asked() const { return !done() && frames.back().progress == Progress::kAwaitingConditions; }
  };

  // Issue, without a watch.
  void EnqueueAll(DeviceEntry& entry, const IssueOptions& options);
  void Fork(DeviceEntry& entry);
  void IssueLanes(DeviceEntry& entry);
  void Join(DeviceEntry& entry);
  // Enqueues the lane's next instruction, or piece, if possible; false: not yet.
  bool Advance(Lane& lane, DeviceEntry& entry);
  bool IssueCollective(Lane& lane);
  bool Transfer(Lane& lane);
  // This process's side of a transfer with another process.
  void TransferOver(Lane& lane);
  void Enqueue(Lane& lane);
  void EnqueuePiece(Lane& lane);
  // Before an instruction is enqueued, and after: looks at its numbers, if the step does.
  void LookAtReads(Lane& lane);
  void LookAtWrites(Lane& lane);
  NumericsLog::Site SiteOf(const Lane& lane) const {
    return {static_cast<int>(lane.rank), lane.index(), lane.front().program, lane.front().instruction};
  }
  NumericsLog::OnHost OnHost(const Lane& lane);
  void EnqueueWork(const DeviceInstruction& prepared, const Lane& lane);
  bool Decide(Lane& lane);
  // Copies the operands that decide an if or a loop to the host: all, or those that an iteration may have changed.
  void CopyConditions(Lane& lane, bool all);
  // The body to run next; null: no further one.
  std::vector<DeviceInstruction>* NextBody(Lane& lane);
  // Waits for the operands of a decision without which nothing else can continue.
  void AwaitConditions();
  // A range for profilers while an instruction of this lane is enqueued. It is within that of its phase, as long as one phase lasts.
  DeviceRange RangeOf(const Lane& lane);
  bool IsTimed(const Lane& lane) const { return (options_.timed || lane.front().apart) && !lane.in_body(); }
  void Begin(Lane& lane);
  void End(Lane& lane);
  void* StreamOf(size_t rank, size_t stream);

  DeviceMemories& memories_;
  DeviceStream origin_;
  DeviceEvent forked_;
  std::vector<DeviceEvent> begin_;                  // by rank
  std::vector<std::vector<DeviceStream>> streams_;  // by rank, by stream of a program
  std::vector<std::vector<DeviceEvent>> joined_;    // the same
  DeviceGroups groups_;
  std::map<std::pair<size_t, size_t>, std::pair<DeviceEvent, DeviceEvent>> transfers_;  // by sender and receiver: sent, received
  // State of the step that is being enqueued.
  IssueOptions options_;
  std::vector<Lane> lanes_;
  std::vector<Lane*> order_;                 // the unfinished lanes of a rank, by their next instruction
  std::vector<std::vector<bool>> recorded_;  // by rank and event
  int turn_ = 0;                             // of the next operation with devices of other processes
  const Instruction* overrun_loop_ = nullptr;
  bool chaotic_ = false;
  std::mt19937_64 random_;
  std::vector<std::byte> looked_at_;  // a value on the host
  PlanPhase phase_ = PlanPhase::kNone;
  std::optional<DeviceRange> phase_range_;
};

}  // namespace gradloom
