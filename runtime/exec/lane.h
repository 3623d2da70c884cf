// A stream of a rank, prepared: instructions with their kernels and all addresses.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/error.h"
#include "runtime/comm/rank_group.h"
#include "runtime/exec/event.h"
#include "runtime/plan/plan.h"

namespace gradloom {

class Communicator;

// Where samples of a device go to or come from: `runs` pieces of `bytes` bytes, at steps apart in the whole batch's tensor and
// in the device's.
struct SampleCopy {
  int64_t runs = 1, bytes = 0;
  int64_t whole_offset = 0, whole_step = 0;

  void Scatter(const std::byte* whole, std::byte* part) const;
  void Gather(const std::byte* part, std::byte* whole) const;
};

class Lane;

struct PreparedInstruction {
  const Instruction* instruction = nullptr;
  int index = 0;                   // in the program
  std::unique_ptr<Kernel> kernel;  // of a launch
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* scratch = nullptr;
  int64_t bytes = 0;                         // of a copy or a transfer
  SampleCopy samples;                        // of a copy of a feed whose samples do not lie together: more than one run
  std::vector<RankGroup::Operand> operands;  // of a collective
  Event* event = nullptr;
  RankGroup* group = nullptr;
  int member = 0;  // of the group
  RankChannel* channel = nullptr;
  std::vector<std::unique_ptr<Lane>> bodies;  // of an if: then, else; of a loop one
  int64_t nanoseconds = 0;                    // of all timed runs
  int64_t begin_ns = 0, end_ns = 0;           // of the last one, by the steady clock
};

// What a step tells its lanes, and what they tell it.
struct StepState {
  uint32_t number = 0;
  bool timed = false;
  bool chaos = false;
  std::atomic<bool> failed{false};
  Communicator* communicator = nullptr;  // of several processes: an error ends the job for all
};

class Lane {
 public:
  // An operand that lies in a feed: filled in at each step.
  struct FeedOperand {
    size_t instruction, input;
    int feed;
    int64_t offset;  // of the rank's shard
  };
  // An operand in the input slot of the step.
  struct SlotOperand {
    size_t instruction, operand;
    bool written;
    int64_t offset;
  };

  int rank = 0;
  int stream = 0;
  int threads = 1;
  std::vector<PreparedInstruction> instructions;
  std::vector<FeedOperand> feeds;
  std::vector<SlotOperand> slots;
  std::vector<Lane*> nested;  // the bodies of its instructions, and theirs

  // Where the step's slot begins.
  void BindSlot(std::byte* slot);
  void BindFeeds(std::span<const void* const> data);

  // Runs the instructions of a body in order, on the thread of its lane. Throws what the first one throws.
  void RunBody(StepState& step);

  // Runs the instructions in order, with a team of `threads` for those of the calling thread. The first error ends the work,
  // here and in all other lanes, but no meeting; it is thrown after the last. Whoever threw first: step.failed was not set.
  void Run(StepState& step);

  // Random delays before each instruction from now on, in steps with chaos.
  void Seed(uint64_t seed) { random_.seed(seed); }

 private:
  template <bool kTimed>
  void RunAll(StepState& step);
  // As an error of a meeting says where it was.
  [[noreturn]] void RethrowAtMeeting(const Error& error, const PreparedInstruction& prepared) const;
  void RunOne(PreparedInstruction& prepared, StepState& step, bool failed);
  void RunLoop(PreparedInstruction& prepared, StepState& step);
  void Delay();

  std::mt19937_64 random_;
};

}  // namespace gradloom
