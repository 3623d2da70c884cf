#include "runtime/exec/executor.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/cpu/cpu_kernels.h"

namespace gradloom {

StateArena::StateArena(const Plan& plan) : memory_(plan.state_bytes, "state") {
  for (const StateTensor& state : plan.state) {
    if (state.initial.defined()) Set(state, state.initial.view());
  }
}

Tensor StateArena::Get(const StateTensor& state) const {
  Tensor value(state.dtype, state.shape);
  if (state.layout.plain()) {
    std::memcpy(value.data(), at(state.offset), static_cast<size_t>(value.bytes()));
  } else {
    FromLayout(state.layout, state.shape, DTypeBytes(state.dtype), at(state.offset), value.data());
  }
  return value;
}

void StateArena::Set(const StateTensor& state, const TensorView& value) {
  if (value.dtype != state.dtype || value.shape != state.shape) {
    throw Error(ErrorCode::kShape, "'" + Escaped(state.name) + "' is " + std::string(DTypeName(state.dtype)) + state.shape.ToString() +
                                       ", the given value " + std::string(DTypeName(value.dtype)) + value.shape.ToString());
  }
  if (state.layout.plain()) {
    std::memcpy(at(state.offset), value.data, static_cast<size_t>(value.bytes()));
  } else {
    ToLayout(state.layout, state.shape, DTypeBytes(state.dtype), value.data, at(state.offset));
  }
}

// One launch with all its addresses. Operands that lie in feeds are filled in at each step.
struct Executor::PreparedLaunch {
  std::unique_ptr<Kernel> kernel;  // null: a copy of `copy_bytes` bytes from inputs[0] to outputs[0]
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* scratch = nullptr;
  int64_t copy_bytes = 0;
  const Instruction* instruction = nullptr;
  int64_t nanoseconds = 0;
};

struct Executor::PreparedProgram {
  struct FeedOperand {
    size_t launch;
    size_t input;
    int feed;
  };
  std::vector<PreparedLaunch> launches;
  std::vector<FeedOperand> feeds;
  int threads = 1;
};

Executor::Executor(std::shared_ptr<const Plan> plan, std::shared_ptr<StateArena> state)
    : plan_(std::move(plan)), state_(std::move(state)), constants_(plan_->constants_bytes, "constants"), step_(plan_->step.bytes, "step") {
  if (state_ == nullptr) state_ = std::make_shared<StateArena>(*plan_);
  if (state_->bytes() < plan_->state_bytes) throw Error(ErrorCode::kPlan, "the state arena is smaller than the plan's");
  for (const Constant& constant : plan_->constants) {
    std::memcpy(constants_.at(constant.offset), constant.value.data(), static_cast<size_t>(constant.value.bytes()));
  }
  int64_t transient_bytes = 0;
  for (const Program& program : plan_->programs) transient_bytes = std::max(transient_bytes, program.transient_bytes);
  transient_ = HostArena(transient_bytes, "transient");
  programs_.resize(plan_->programs.size());
}

Executor::~Executor() = default;

std::byte* Executor::Address(const Buffer& buffer) const {
  switch (buffer.arena) {
    case Arena::kState: return state_->at(buffer.offset);
    case Arena::kConstants: return constants_.at(buffer.offset);
    case Arena::kTransient: return transient_.at(buffer.offset);
    case Arena::kStep: return step_.at(buffer.offset);
    case Arena::kFeed: return nullptr;
  }
  return nullptr;
}

Executor::PreparedProgram& Executor::Prepared(int index) {
  auto& slot = programs_[static_cast<size_t>(index)];
  if (slot != nullptr) return *slot;
  const Program& program = plan_->programs[static_cast<size_t>(index)];
  if (program.streams.size() != 1) {
    throw Error(ErrorCode::kUnsupported,
                "this executor runs programs of one stream; the plan has " + std::to_string(program.streams.size()), "",
                "compile with --devices cpu");
  }
  auto prepared = std::make_unique<PreparedProgram>();
  prepared->threads = program.streams[0].threads;
  prepared->launches.reserve(program.instructions.size());
  for (const Instruction& instruction : program.instructions) {
    PreparedLaunch launch;
    launch.instruction = &instruction;
    for (const Use& use : instruction.uses) {
      const Buffer* buffer = use.buffer < 0 ? nullptr : &program.buffers[static_cast<size_t>(use.buffer)];
      std::byte* address = buffer == nullptr ? nullptr : Address(*buffer);
      switch (use.access) {
        case Access::kRead:
          if (buffer != nullptr && buffer->arena == Arena::kFeed) {
            prepared->feeds.push_back({prepared->launches.size(), launch.inputs.size(), buffer->feed});
          }
          launch.inputs.push_back(address);
          break;
        case Access::kWrite: launch.outputs.push_back(address); break;
        case Access::kScratch: launch.scratch = address; break;
      }
      if (instruction.kind == InstructionKind::kCopy) launch.copy_bytes = buffer->bytes;
    }
    if (instruction.kind == InstructionKind::kLaunch) {
      const KernelRow* row = FindKernel(instruction.kernel);
      if (row == nullptr)
        throw Error(ErrorCode::kPlan, "no kernel '" + Escaped(instruction.kernel) + "' in this build", Escaped(instruction.origin));
      launch.kernel = MakeCpuKernel(*row, CallOf(program, instruction));
    } else if (instruction.kind != InstructionKind::kCopy) {
      throw Error(ErrorCode::kUnsupported, "this executor runs launches and copies only", Escaped(instruction.origin));
    }
    prepared->launches.push_back(std::move(launch));
  }
  slot = std::move(prepared);
  return *slot;
}

namespace {

void CheckFeeds(const Entry& entry, std::span<const TensorView> feeds) {
  if (feeds.size() != entry.feeds.size()) {
    throw Error(ErrorCode::kShape, "the entry takes " + std::to_string(entry.feeds.size()) + " feeds, got " + std::to_string(feeds.size()));
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Feed& want = entry.feeds[i];
    if (feeds[i].dtype != want.dtype || feeds[i].shape != want.shape) {
      throw Error(ErrorCode::kShape, "feed '" + Escaped(want.name) + "' is " + std::string(DTypeName(want.dtype)) + want.shape.ToString() +
                                         ", got " + std::string(DTypeName(feeds[i].dtype)) + feeds[i].shape.ToString());
    }
  }
}

// Kernels know numbers; the plan knows the node.
[[noreturn]] void RethrowAt(const Error& error, const Instruction& instruction) {
  const std::string at = instruction.op + (instruction.origin.empty() ? "" : " '" + Escaped(instruction.origin) + "'");
  throw Error(error.code(), error.message(), error.where().empty() ? at : at + ", " + error.where(), error.help());
}

}  // namespace

void Executor::Run(int entry_index, std::span<const TensorView> feeds, const StepParams& params) {
  const Entry& entry = plan_->entries[static_cast<size_t>(entry_index)];
  CheckFeeds(entry, feeds);
  PreparedProgram& program = Prepared(entry.ranks[0].program);
  feeds_.clear();
  for (const TensorView& feed : feeds) feeds_.push_back(feed.data);
  const StepLayout& step = plan_->step;
  if (step.lr >= 0) std::memcpy(step_.at(step.lr), &params.lr, sizeof params.lr);
  if (step.step >= 0) std::memcpy(step_.at(step.step), &params.step, sizeof params.step);
  if (step.batch >= 0) std::memcpy(step_.at(step.batch), &params.batch, sizeof params.batch);
  if (step.seed >= 0) std::memcpy(step_.at(step.seed), &params.seed, sizeof params.seed);
  for (const auto& operand : program.feeds)
    program.launches[operand.launch].inputs[operand.input] = feeds_[static_cast<size_t>(operand.feed)];
  if (omp_get_max_threads() != program.threads) omp_set_num_threads(program.threads);
  if (timed_) {
    RunLaunches<true>(program);
  } else {
    RunLaunches<false>(program);
  }
}

template <bool kTimed>
void Executor::RunLaunches(PreparedProgram& program) {
  using Clock = std::chrono::steady_clock;
  for (PreparedLaunch& launch : program.launches) {
    [[maybe_unused]] const auto start = kTimed ? Clock::now() : Clock::time_point();
    if (launch.kernel == nullptr) {
      std::memcpy(launch.outputs[0], launch.inputs[0], static_cast<size_t>(launch.copy_bytes));
    } else {
      try {
        launch.kernel->Run(launch.inputs.data(), launch.outputs.data(), launch.scratch, nullptr);
      } catch (const Error& error) {
        RethrowAt(error, *launch.instruction);
      }
    }
    if constexpr (kTimed) launch.nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  }
}

std::vector<int64_t> Executor::nanoseconds(int program) const {
  std::vector<int64_t> sums;
  const auto& prepared = programs_[static_cast<size_t>(program)];
  if (prepared == nullptr) return sums;
  for (const PreparedLaunch& launch : prepared->launches) sums.push_back(launch.nanoseconds);
  return sums;
}

TensorView Executor::Fetched(int entry_index, int fetch) const {
  const Entry& entry = plan_->entries[static_cast<size_t>(entry_index)];
  const Program& program = plan_->programs[static_cast<size_t>(entry.ranks[0].program)];
  const Buffer& buffer = program.buffers[static_cast<size_t>(entry.fetches[static_cast<size_t>(fetch)].buffer)];
  const void* data = buffer.arena == Arena::kFeed ? feeds_[static_cast<size_t>(buffer.feed)] : Address(buffer);
  return {buffer.dtype, buffer.shape, data};
}

}  // namespace gradloom
