#include "runtime/exec/lane.h"

#include <omp.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/exec/numerics.h"
#include "runtime/exec/rethrow.h"

namespace gradloom {

void SampleCopy::Scatter(const std::byte* whole, std::byte* part) const {
  for (int64_t run = 0; run < runs; ++run) {
    std::memcpy(part + run * bytes, whole + whole_offset + run * whole_step, static_cast<size_t>(bytes));
  }
}

void SampleCopy::Gather(const std::byte* part, std::byte* whole) const {
  for (int64_t run = 0; run < runs; ++run) {
    std::memcpy(whole + whole_offset + run * whole_step, part + run * bytes, static_cast<size_t>(bytes));
  }
}

void Lane::BindFeeds(std::span<const void* const> data) {
  for (Lane* body : nested) body->BindFeeds(data);
  for (const FeedOperand& operand : feeds) {
    instructions[operand.instruction].inputs[operand.input] =
        static_cast<const std::byte*>(data[static_cast<size_t>(operand.feed)]) + operand.offset;
  }
}

void Lane::BindSlot(std::byte* slot) {
  for (Lane* body : nested) body->BindSlot(slot);
  for (const SlotOperand& operand : slots) {
    PreparedInstruction& prepared = instructions[operand.instruction];
    if (operand.written) {
      prepared.outputs[operand.operand] = slot + operand.offset;
    } else {
      prepared.inputs[operand.operand] = slot + operand.offset;
    }
  }
}

namespace {

// Sets the size of the calling thread's teams, and that they have it whatever the load of the machine (OMP_DYNAMIC): oneDNN's primitives
// are made for it, and leave parts of their results out in a smaller team. The thread may be the user's, so both are restored.
class TeamSize {
 public:
  explicit TeamSize(int threads) : dynamic_(omp_get_dynamic()), threads_(threads) {
    if (dynamic_ != 0) omp_set_dynamic(0);
    before_ = omp_get_max_threads();
    if (before_ != threads_) omp_set_num_threads(threads_);
  }
  ~TeamSize() {
    if (before_ != threads_) omp_set_num_threads(before_);
    if (dynamic_ != 0) omp_set_dynamic(dynamic_);
  }
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;

 private:
  const int dynamic_, threads_;
  int before_ = 0;
};

// Throws Error(kLimit) if OpenMP's limits make the calling thread's teams smaller than `threads`.
void CheckTeam([[maybe_unused]] int threads) {
// ThreadSanitizer does not know the barriers of libgomp, and kernels use no teams with it (ParallelRanges).
#if !defined(__SANITIZE_THREAD__)
  int found = 1;
#pragma omp parallel num_threads(threads)
#pragma omp master
  found = omp_get_num_threads();
  if (found >= threads) return;
  throw Error(ErrorCode::kLimit,
              "OpenMP allows teams of " + std::to_string(found) + (found == 1 ? " thread" : " threads") + ", but the plan computes with " +
                  std::to_string(threads),
              "", "raise OMP_THREAD_LIMIT and OMP_MAX_ACTIVE_LEVELS, or compile the plan with fewer --threads");
#endif
}

}  // namespace

void Lane::Run(StepState& step) {
  const TeamSize team(threads);
  step.timed ? RunAll<true>(step) : RunAll<false>(step);
}

namespace {

// Aborts immediately rather than at the end of the step: other streams of this process wait for processes that wait for this one.
void AbortWith(Communicator& communicator, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    communicator.Abort(std::string(ErrorName(e.code())) + ": " + e.message());
  } catch (const std::exception& e) {
    communicator.Abort(e.what());
  }
}

}  // namespace

void Lane::RethrowAtCommunication(const Error& error, const PreparedInstruction& prepared) const {
  int number = 0;
  for (const PreparedInstruction& other : instructions) {
    number += Communicates(*other.instruction) ? 1 : 0;
    if (&other == &prepared) break;
  }
  throw Error(error.code(), error.message(),
              "in " + std::string(CommunicationName(*prepared.instruction)) + " #" + std::to_string(number) +
                  (prepared.instruction->origin.empty() ? "" : " (" + Escaped(prepared.instruction->origin) + ")"),
              error.help());
}

template <bool kTimed>
void Lane::RunAll(StepState& step) {
  using Clock = std::chrono::steady_clock;
  [[maybe_unused]] const auto nanoseconds = [](Clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  };
  std::exception_ptr error;
  const auto fail = [&] {
    step.failed.store(true, std::memory_order_relaxed);
    error = std::current_exception();
    if (step.communicator != nullptr) AbortWith(*step.communicator, error);
  };
  if (!has_team_ && threads > 1) {
    try {
      CheckTeam(threads);
      has_team_ = true;
    } catch (...) {
      fail();
    }
  }
  for (PreparedInstruction& prepared : instructions) {
    if (step.repeats && prepared.settled) {
      if constexpr (kTimed) prepared.begin_ns = prepared.end_ns = nanoseconds(Clock::now());
      continue;
    }
    if (step.chaos) Delay();
    [[maybe_unused]] const auto start = kTimed ? Clock::now() : Clock::time_point();
    try {
      RunAndLook(prepared, step, step.failed.load(std::memory_order_relaxed));
    } catch (...) {
      fail();
    }
    if constexpr (kTimed) {
      prepared.begin_ns = nanoseconds(start);
      prepared.end_ns = nanoseconds(Clock::now());
      prepared.nanoseconds += prepared.end_ns - prepared.begin_ns;
    }
  }
  if (error) std::rethrow_exception(error);
}

void Lane::RunAndLook(PreparedInstruction& prepared, StepState& step, bool failed) {
  if (step.numerics == nullptr || failed || !NumericsLog::Applies(*prepared.instruction)) return RunOne(prepared, step, failed);
  const NumericsLog::Site site{rank, top < 0 ? prepared.index : top, program, prepared.instruction};
  // Before it runs, since it may overwrite what it reads.
  std::vector<ScannedValue> reads;
  try {
    reads = NumericsLog::Reads(site, prepared.inputs);
  } catch (...) {
    RunOne(prepared, step, true);  // other lanes wait for this one at events and collectives
    throw;
  }
  RunOne(prepared, step, failed);
  step.numerics->Note(site, std::move(reads), prepared.outputs);
}

void Lane::RunOne(PreparedInstruction& prepared, StepState& step, bool failed) {
  // Communication goes on after a failure.
  if (prepared.writes_state && (!failed || Communicates(*prepared.instruction))) step.wrote_state.store(true, std::memory_order_relaxed);
  switch (prepared.instruction->kind) {
    case InstructionKind::kLaunch:
      if (failed) return;
      try {
        prepared.kernel->Run(prepared.inputs.data(), prepared.outputs.data(), prepared.scratch, nullptr);
      } catch (const Error& error) {
        RethrowAt(error, *prepared.instruction);
      }
      return;
    case InstructionKind::kCopy:
      if (failed) return;
      if (prepared.samples.runs > 1) {
        prepared.samples.Scatter(static_cast<const std::byte*>(prepared.inputs[0]), static_cast<std::byte*>(prepared.outputs[0]));
      } else {
        std::memcpy(prepared.outputs[0], prepared.inputs[0], static_cast<size_t>(prepared.bytes));
      }
      return;
    case InstructionKind::kRecord: return prepared.event->Record(step.number);
    case InstructionKind::kWait: return prepared.event->Wait(step.number);
    case InstructionKind::kCollective:
      // A feed has another address in each step.
      for (size_t k = 0; k < prepared.operands.size(); ++k) prepared.operands[k].read = prepared.inputs[k];
      try {
        prepared.group->Run(prepared.member, prepared.instruction->collective, prepared.instruction->root, prepared.operands, failed);
      } catch (const Error& error) {
        RethrowAtCommunication(error, prepared);
      }
      return;
    case InstructionKind::kSend:
    case InstructionKind::kRecv:
      try {
        if (prepared.instruction->kind == InstructionKind::kSend) {
          prepared.channel->Send(prepared.inputs[0], prepared.bytes, failed);
        } else {
          prepared.channel->Receive(prepared.outputs[0], prepared.bytes, failed);
        }
      } catch (const Error& error) {
        RethrowAtCommunication(error, prepared);
      }
      return;
    case InstructionKind::kIf:
      if (!failed) prepared.bodies[*static_cast<const bool*>(prepared.inputs[0]) ? 0 : 1]->RunBody(step);
      return;
    case InstructionKind::kLoop:
      if (!failed) RunLoop(prepared, step);
      return;
  }
}

// Loop-carried values keep their buffers, and so does the condition.
void Lane::RunLoop(PreparedInstruction& prepared, StepState& step) {
  const auto* trips = static_cast<const int64_t*>(prepared.inputs[0]);
  const auto* condition = static_cast<const bool*>(prepared.inputs[1]);
  // Read only once, since the body may overwrite it.
  const int64_t count = trips != nullptr ? *trips : std::numeric_limits<int64_t>::max();
  for (int64_t trip = 0; trip < count && (condition == nullptr || *condition); ++trip) {
    if (trip >= prepared.instruction->trip_bound) ThrowTripLimit(*prepared.instruction);
    prepared.bodies[0]->RunBody(step);
  }
}

// The order of the list satisfies streams and events.
void Lane::RunBody(StepState& step) {
  for (PreparedInstruction& prepared : instructions) {
    const InstructionKind kind = prepared.instruction->kind;
    if (kind == InstructionKind::kRecord || kind == InstructionKind::kWait) continue;
    if (step.chaos) Delay();
    RunAndLook(prepared, step, false);
  }
}

void Lane::Seed(uint64_t seed) {
  random_.seed(seed);
  for (Lane* body : nested) body->Seed(random_());
}

void Lane::Delay() {
  const uint64_t drawn = random_();
  if (drawn % 4 == 0) {
    std::this_thread::yield();
  } else if (drawn % 4 == 1) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(drawn / 4 % 8192);
    while (std::chrono::steady_clock::now() < until) {
    }
  } else if (drawn % 32 == 2) {
    std::this_thread::sleep_for(std::chrono::microseconds(drawn / 32 % 200));
  }
}

}  // namespace gradloom
