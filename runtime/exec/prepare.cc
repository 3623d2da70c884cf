#include "runtime/exec/prepare.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "kernels/cpu/cpu_kernels.h"
#include "runtime/base/checked.h"
#include "runtime/exec/executor.h"

namespace gradloom {

Memory::Memory(const Plan& plan, std::shared_ptr<StateArena> state)
    : state_(std::move(state)),
      ranks_(plan.num_ranks()),
      step_bytes_(AlignUp(plan.step.bytes, kAlignmentBytes)),
      constants_(plan.constants_bytes, "constants"),
      step_(step_bytes_ * static_cast<int64_t>(ranks_), "step") {
  if (state_ == nullptr) state_ = std::make_shared<StateArena>(plan);
  if (state_->ranks() != ranks_ || state_->bytes() < plan.state_bytes) {
    throw Error(ErrorCode::kPlan, "the state arena is smaller than the plan's");
  }
  for (const Constant& constant : plan.constants) {
    std::memcpy(constants_.at(constant.offset), constant.value.data(), static_cast<size_t>(constant.value.bytes()));
  }
  for (const Program& program : plan.programs) transient_bytes_ = std::max(transient_bytes_, program.transient_bytes);
  TakeTransient();
}

void Memory::TakeTransient() {
  std::vector<HostArena> taken;
  for (size_t rank = 0; rank < ranks_; ++rank) taken.emplace_back(transient_bytes_, "transient");
  transient_ = std::move(taken);
}

std::byte* Memory::Address(const Buffer& buffer, int rank) const {
  switch (buffer.arena) {
    case Arena::kState: return state_->at(rank, buffer.offset);
    case Arena::kConstants: return constants_.at(buffer.offset);
    case Arena::kTransient: return transient_[static_cast<size_t>(rank)].at(buffer.offset);
    case Arena::kStep: return step(rank, buffer.offset);
    case Arena::kFeed: return nullptr;
  }
  return nullptr;
}

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

SampleCopy CopyOf(const Shape& whole, int64_t element_bytes, int axis, int64_t inner, const RankBinding& rank, int64_t batch) {
  const auto samples = axis < 0 || rank.shard_length == batch ? std::nullopt : SamplesIn(whole, axis, inner, batch);
  if (!samples) return {.bytes = whole.elements() * element_bytes};
  const int64_t each = samples->together * element_bytes;
  return {samples->outer, rank.shard_length * each, rank.shard_start * each, batch * each};
}

namespace {

class Preparation {
 public:
  Preparation(const Plan& plan, int entry, const Memory& memory)
      : plan_(plan), entry_(plan.entries[static_cast<size_t>(entry)]), memory_(memory) {}

  PreparedEntry Run() {
    groups_.resize(plan_.groups.size());
    for (size_t rank = 0; rank < entry_.ranks.size(); ++rank) AddRank(static_cast<int>(rank));
    return std::move(made_);
  }

 private:
  const RankBinding& binding(int rank) const { return entry_.ranks[static_cast<size_t>(rank)]; }

  void AddRank(int rank) {
    const Program& program = plan_.programs[static_cast<size_t>(binding(rank).program)];
    const size_t first = made_.lanes.size();
    for (size_t s = 0; s < program.streams.size(); ++s) {
      made_.lanes.push_back(std::make_unique<Lane>());
      Lane& lane = *made_.lanes.back();
      lane.rank = rank;
      lane.stream = static_cast<int>(s);
      lane.threads = program.streams[s].threads;
    }
    std::vector<Event*> events;
    for (int i = 0; i < program.num_events; ++i) events.push_back(made_.events.emplace_back(std::make_unique<Event>()).get());
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      Lane& lane = *made_.lanes[first + static_cast<size_t>(instruction.stream)];
      PreparedInstruction prepared;
      prepared.instruction = &instruction;
      prepared.index = static_cast<int>(i);
      if (instruction.event >= 0) prepared.event = events[static_cast<size_t>(instruction.event)];
      BindOperands(program, prepared, lane);
      BindWork(program, prepared, rank);
      lane.instructions.push_back(std::move(prepared));
    }
  }

  void BindOperands(const Program& program, PreparedInstruction& prepared, Lane& lane) {
    for (const Use& use : prepared.instruction->uses) {
      const Buffer* buffer = use.buffer < 0 ? nullptr : &program.buffers[static_cast<size_t>(use.buffer)];
      std::byte* address = buffer == nullptr ? nullptr : memory_.Address(*buffer, lane.rank);
      switch (use.access) {
        case Access::kRead:
          if (buffer != nullptr && buffer->arena == Arena::kFeed) BindFeed(*buffer, prepared, lane, address);
          prepared.inputs.push_back(address);
          break;
        case Access::kWrite:
          if (prepared.outputs.empty() && buffer != nullptr) prepared.write_bytes = buffer->bytes;
          prepared.outputs.push_back(address);
          break;
        case Access::kScratch: prepared.scratch = address; break;
      }
    }
  }

  // A rank's samples are read in place where they lie together in the whole batch, and else copied first.
  void BindFeed(const Buffer& buffer, const PreparedInstruction& prepared, Lane& lane, std::byte*& address) {
    const Feed& feed = entry_.feeds[static_cast<size_t>(buffer.feed)];
    const SampleCopy copy = CopyOf(feed.shape, DTypeBytes(feed.dtype), feed.batch_axis, feed.batch_inner, binding(lane.rank), entry_.batch);
    if (copy.runs <= 1) {
      lane.feeds.push_back({lane.instructions.size(), prepared.inputs.size(), buffer.feed, copy.whole_offset});
      return;
    }
    const auto [at, fresh] = staged_.emplace(std::pair(lane.rank, buffer.feed), made_.staged.size());
    if (fresh) made_.staged.push_back({buffer.feed, copy, HostArena(copy.runs * copy.bytes, "feed")});
    address = made_.staged[at->second].memory.at(0);
  }

  void BindWork(const Program& program, PreparedInstruction& prepared, int rank) {
    const Instruction& instruction = *prepared.instruction;
    switch (instruction.kind) {
      case InstructionKind::kLaunch: {
        const KernelRow* row = FindKernel(instruction.kernel);
        if (row == nullptr) {
          throw Error(ErrorCode::kPlan, "no kernel '" + Escaped(instruction.kernel) + "' in this build", Escaped(instruction.origin));
        }
        prepared.kernel = MakeCpuKernel(*row, CallOf(program, instruction));
        return;
      }
      case InstructionKind::kCopy:
      case InstructionKind::kRecord:
      case InstructionKind::kWait: return;
      case InstructionKind::kCollective: return BindCollective(program, prepared, rank);
      case InstructionKind::kSend:
      case InstructionKind::kRecv: {
        const int peer = binding(rank).peers[static_cast<size_t>(instruction.peer)];
        const bool sends = instruction.kind == InstructionKind::kSend;
        LocalChannel*& channel = channels_[sends ? std::pair(rank, peer) : std::pair(peer, rank)];
        if (channel == nullptr) channel = made_.channels.emplace_back(std::make_unique<LocalChannel>()).get();
        prepared.channel = channel;
        return;
      }
      case InstructionKind::kIf:
      case InstructionKind::kLoop:
        throw Error(ErrorCode::kUnsupported, "this executor does not run If and Loop yet", Escaped(instruction.origin));
    }
  }

  void BindCollective(const Program& program, PreparedInstruction& prepared, int rank) {
    const Instruction& instruction = *prepared.instruction;
    const auto group = static_cast<size_t>(binding(rank).groups[static_cast<size_t>(instruction.group)]);
    const std::vector<int>& members = plan_.groups[group].ranks;
    if (groups_[group] == nullptr) {
      groups_[group] = made_.groups.emplace_back(std::make_unique<LocalGroup>(static_cast<int>(members.size()))).get();
    }
    prepared.group = groups_[group];
    prepared.member = static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
    const bool sums = instruction.collective == Collective::kAllReduceSum || instruction.collective == Collective::kReduceScatterSum;
    const size_t count = instruction.uses.size() / 2;
    for (size_t k = 0; k < count; ++k) {
      const Buffer& read = program.buffers[static_cast<size_t>(instruction.uses[k].buffer)];
      const Buffer& write = program.buffers[static_cast<size_t>(instruction.uses[count + k].buffer)];
      prepared.operands.push_back({read.dtype, prepared.inputs[k], prepared.outputs[k], read.bytes, write.bytes});
      if (!sums || LocalGroup::CanSum(read.dtype)) continue;
      throw Error(ErrorCode::kUnsupported, "no sum over devices of " + std::string(DTypeName(read.dtype)), Escaped(instruction.origin));
    }
  }

  const Plan& plan_;
  const Entry& entry_;
  const Memory& memory_;
  PreparedEntry made_;
  std::vector<LocalGroup*> groups_;                        // by index into Plan::groups
  std::map<std::pair<int, int>, LocalChannel*> channels_;  // by sender and receiver
  std::map<std::pair<int, int>, size_t> staged_;           // by rank and feed
};

}  // namespace

PreparedEntry Prepare(const Plan& plan, int entry, const Memory& memory) { return Preparation(plan, entry, memory).Run(); }

}  // namespace gradloom
