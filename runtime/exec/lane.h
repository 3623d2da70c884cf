// A lane: a prepared stream of a rank, with the kernels and addresses of its instructions.
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
class NumericsLog;

// Copies samples between the tensor of the whole batch and a device's part: `runs` pieces of `bytes` bytes, at different distances in the
// two.
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
  bool writes_state = false;       // with its bodies; within these it is not set
  bool settled = false;            // left out by steps that repeat the last one (runtime/plan/settled.h)
  std::unique_ptr<Kernel> kernel;  // of a launch
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* scratch = nullptr;
  int64_t bytes = 0;                         // of a copy or a transfer
  SampleCopy samples;                        // of a copy of a feed whose samples are not contiguous: more than one run
  std::vector<RankGroup::Operand> operands;  // of a collective
  Event* event = nullptr;
  RankGroup* group = nullptr;
  int member = 0;  // of the group
  RankChannel* channel = nullptr;
  std::vector<std::unique_ptr<Lane>> bodies;  // of an if: then, else; of a loop one
  int64_t nanoseconds = 0;                    // of all timed runs
  int64_t begin_ns = 0, end_ns = 0;           // of the last one, by the steady clock
};

// The state of a step that its lanes share.
struct StepState {
  uint32_t number = 0;
  bool timed = false;
  bool chaos = false;
  bool repeats = false;  // what settled instructions have written in an earlier step is in memory
  std::atomic<bool> failed{false};
  std::atomic<bool> wrote_state{false};  // whether an instruction that writes state has begun
  NumericsLog* numerics = nullptr;       // looks at all numbers; null: does not
  Communicator* communicator = nullptr;  // with several processes: an error ends the job for all
};

class Lane {
 public:
  // An operand in a feed; its address is set at each step.
  struct FeedOperand {
    size_t instruction, input;
    int feed;
    int64_t offset;  // of the rank's shard
  };
  // An operand in the step's input slot.
  struct SlotOperand {
    size_t instruction, operand;
    bool written;
    int64_t offset;
  };

  int rank = 0;
  int stream = 0;
  int threads = 1;
  const Program* program = nullptr;  // of its instructions: the rank's, or a body
  int top = -1;                      // of a body: index of the rank's instruction that has it
  std::vector<PreparedInstruction> instructions;
  std::vector<FeedOperand> feeds;
  std::vector<SlotOperand> slots;
  std::vector<Lane*> nested;  // the bodies of its instructions, and bodies within them

  // Sets the address of the step's slot.
  void BindSlot(std::byte* slot);
  void BindFeeds(std::span<const void* const> data);

  // Runs the instructions of a body in order, on the thread of its lane. Throws the first error.
  void RunBody(StepState& step);

  // Runs the instructions in order, with a team of `threads` threads; a step that repeats leaves out those that are settled. The first
  // error ends the work here and in all other lanes, except for collectives and transfers, and is thrown after the last instruction. The
  // lane that threw first is the one that found step.failed not set. Throws Error(kLimit) if OpenMP does not allow such a team.
  void Run(StepState& step);

  // Seeds the random delays before each instruction, those of bodies included, in steps with chaos.
  void Seed(uint64_t seed);

 private:
  template <bool kTimed>
  void RunAll(StepState& step);
  // Adds the place of the collective or transfer to the error.
  [[noreturn]] void RethrowAtCommunication(const Error& error, const PreparedInstruction& prepared) const;
  void RunOne(PreparedInstruction& prepared, StepState& step, bool failed);
  // The same, and looks at the numbers if the step does.
  void RunAndLook(PreparedInstruction& prepared, StepState& step, bool failed);
  void RunLoop(PreparedInstruction& prepared, StepState& step);
  void Delay();

  std::mt19937_64 random_;
  bool has_team_ = false;  // whether its thread has been found to have teams of `threads` threads
};

}  // namespace gradloom
