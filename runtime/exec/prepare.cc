#include "runtime/exec/prepare.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "kernels/cpu/cpu_kernels.h"
#include "runtime/base/checked.h"
#include "runtime/base/run_on_threads.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local_group.h"
#include "runtime/exec/rethrow.h"
#include "runtime/exec/state_arena.h"
#include "runtime/plan/settled.h"

namespace gradloom {

namespace {

// The limit for a transient arena. A larger one may be due to data-dependent extents, and much of it may never be touched.
constexpr int64_t kMaxPopulatedBytes = int64_t{1} << 30;

class HostArenaMemory : public ArenaMemory {
 public:
  explicit HostArenaMemory(int64_t bytes) : memory_(bytes, "state") {}
  std::byte* at(int64_t offset) const override { return memory_.at(offset); }
  int64_t bytes() const override { return memory_.bytes(); }
  bool own_host_memory() const override { return true; }
  void Populate() override { memory_.Populate(memory_.bytes()); }
  void Read(int64_t offset, int64_t bytes, void* to) const override {
    if (bytes > 0) std::memcpy(to, memory_.at(offset), static_cast<size_t>(bytes));
  }
  void Write(int64_t offset, int64_t bytes, const void* from) override {
    if (bytes > 0) std::memcpy(memory_.at(offset), from, static_cast<size_t>(bytes));
  }

 private:
  HostArena memory_;
};

}  // namespace

std::unique_ptr<ArenaMemory> AllocateHostArena(size_t, int64_t bytes) { return std::make_unique<HostArenaMemory>(bytes); }

Memory::Memory(const Plan& plan, std::shared_ptr<StateArena> state, RankRange own)
    : own_(own),
      state_(std::move(state)),
      sizes_(SizesOf(plan)),
      step_bytes_(AlignUp(plan.step.bytes, kAlignmentBytes)),
      step_(step_bytes_ * static_cast<int64_t>(plan.num_ranks()), "step") {
  for (size_t rank = 0; rank < plan.num_ranks(); ++rank) places_.push_back(plan.PlaceOf(rank));
  if (state_ == nullptr) state_ = std::make_shared<StateArena>(plan, AllocateHostArena, own);
  bool fits = state_->ranks() == ranks();
  for (auto rank = static_cast<size_t>(own.first); fits && rank < static_cast<size_t>(own.last); ++rank)
    fits = state_->holds(rank) && state_->bytes(rank) >= plan.places[static_cast<size_t>(place(rank))].state_bytes;
  if (!fits) throw Error(ErrorCode::kPlan, "the state arena is smaller than the plan requires");
  for (size_t i = 0; i < plan.places.size(); ++i) constants_.emplace_back().push_back(AllocateConstants(plan, static_cast<int>(i), 0, 0));
  AllocateTransient();
}

Memory::Sizes Memory::SizesOf(const Plan& plan) {
  Sizes sizes{std::vector<int64_t>(plan.places.size()), std::vector<int64_t>(plan.places.size())};
  for (const Program& program : plan.programs) {
    int64_t& bytes = sizes.transient[static_cast<size_t>(program.place)];
    bytes = std::max(bytes, program.transient_bytes);
    int64_t& slot = sizes.slot[static_cast<size_t>(program.place)];
    slot = std::max(slot, AlignUp(program.input_bytes, kAlignmentBytes));
  }
  return sizes;
}

Memory::ConstantsPart Memory::AllocateConstants(const Plan& plan, int place, size_t first, int64_t begin) const {
  bool used = false;
  for (int rank = own_.first; rank < own_.last; ++rank) used |= this->place(static_cast<size_t>(rank)) == place;
  ConstantsPart part{begin, HostArena(used ? plan.places[static_cast<size_t>(place)].constants_bytes - begin : 0, "constants")};
  for (size_t i = first; used && i < plan.constants.size(); ++i) {
    const Constant& constant = plan.constants[i];
    if (constant.in_place(place))
      std::memcpy(part.memory.at(constant.offset - begin), constant.value.data(), static_cast<size_t>(constant.value.bytes()));
  }
  return part;
}

int64_t Memory::constants_bytes(int place) const {
  int64_t bytes = 0;
  for (const ConstantsPart& part : constants_[static_cast<size_t>(place)]) bytes += part.memory.bytes();
  return bytes;
}

void Memory::AllocateTransient() {
  std::vector<HostArena> taken;
  for (size_t rank = 0; rank < ranks(); ++rank) taken.emplace_back(OwnBytes(rank, transient_bytes(rank)), "transient");
  std::vector<HostArena> inputs;
  for (size_t rank = 0; rank < ranks(); ++rank) inputs.emplace_back(OwnBytes(rank, input_bytes(rank)), "input");
  transient_ = std::move(taken);
  inputs_ = std::move(inputs);
  ++version_;
}

void Memory::Populate(const Plan& plan, int entry) {
  if (!std::exchange(state_populated_, true)) state_->Populate();
  const std::vector<RankBinding>& bindings = plan.entries[static_cast<size_t>(entry)].ranks;
  for (int rank = own_.first; rank < own_.last; ++rank) {
    const auto r = static_cast<size_t>(rank);
    const int64_t bytes = plan.programs[static_cast<size_t>(bindings[r].program)].transient_bytes;
    transient_[r].Populate(std::min(bytes, kMaxPopulatedBytes));
  }
}

void Memory::Extend(const Plan& plan, const Plan& before) {
  std::vector<ConstantsPart> added;
  for (size_t i = 0; i < plan.places.size(); ++i)
    added.push_back(AllocateConstants(plan, static_cast<int>(i), before.constants.size(), before.places[i].constants_bytes));
  Sizes sizes = SizesOf(plan);
  for (size_t rank = 0; has_transient() && rank < ranks(); ++rank) {
    const auto at = static_cast<size_t>(places_[rank]);
    if (sizes.transient[at] > sizes_.transient[at]) {
      ++version_;
      transient_[rank].Grow(OwnBytes(rank, sizes.transient[at]), "transient");
    }
    inputs_[rank].Grow(OwnBytes(rank, 2 * sizes.slot[at]), "input");
  }
  sizes_ = std::move(sizes);
  for (size_t i = 0; i < added.size(); ++i) {
    if (added[i].memory.bytes() > 0) constants_[i].push_back(std::move(added[i]));
  }
}

std::byte* Memory::Slot(int rank, uint32_t step) const {
  const auto r = static_cast<size_t>(rank);
  return inputs_[r].at(step % 2 * sizes_.slot[static_cast<size_t>(places_[r])]);
}

bool Memory::has_inputs() const {
  return std::any_of(sizes_.slot.begin(), sizes_.slot.end(), [](int64_t bytes) { return bytes > 0; });
}

std::byte* Memory::Address(const Buffer& buffer, int rank) const {
  switch (buffer.arena) {
    case Arena::kState: return state_->at(rank, buffer.offset);
    case Arena::kConstants: {
      const std::vector<ConstantsPart>& parts = constants_[static_cast<size_t>(place(static_cast<size_t>(rank)))];
      const auto after = std::upper_bound(parts.begin() + 1, parts.end(), buffer.offset,
                                          [](int64_t offset, const ConstantsPart& part) { return offset < part.begin; });
      return std::prev(after)->memory.at(buffer.offset - std::prev(after)->begin);
    }
    case Arena::kTransient: return transient_[static_cast<size_t>(rank)].at(buffer.offset);
    case Arena::kStep: return step(rank, buffer.offset);
    case Arena::kFeed: return nullptr;
    case Arena::kInput: return nullptr;  // bound in each step
  }
  return nullptr;
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
  Preparation(const Plan& plan, int entry, const Memory& memory, Communicator* communicator)
      : plan_(plan),
        index_(static_cast<size_t>(entry)),
        entry_(plan.entries[static_cast<size_t>(entry)]),
        memory_(memory),
        communicator_(communicator) {}

  PreparedEntry Run() {
    result_.memory_version = memory_.version();
    groups_.resize(plan_.groups.size());
    for (int rank = memory_.own().first; rank < memory_.own().last; ++rank) AddRank(rank);
    MakeKernels();
    return std::move(result_);
  }

  void Rebind(PreparedEntry& prepared) {
    for (auto* lanes : {&prepared.lanes, &prepared.copies}) {
      for (const auto& lane : *lanes) RebindLane(plan_.programs[static_cast<size_t>(binding(lane->rank).program)], *lane);
    }
    prepared.memory_version = memory_.version();
  }

 private:
  const RankBinding& binding(int rank) const { return entry_.ranks[static_cast<size_t>(rank)]; }

  void AddRank(int rank) {
    const Program& program = plan_.programs[static_cast<size_t>(binding(rank).program)];
    std::vector<Lane*> lanes;
    for (size_t s = 0; s < program.streams.size(); ++s) {
      auto& list = program.streams[s].kind == StreamKind::kCopy ? result_.copies : result_.lanes;
      Lane& lane = *list.emplace_back(std::make_unique<Lane>());
      lanes.push_back(&lane);
      lane.rank = rank;
      lane.stream = static_cast<int>(s);
      lane.threads = program.streams[s].threads;
      lane.program = &program;
    }
    std::vector<Event*> events;
    for (int i = 0; i < program.num_events; ++i) events.push_back(result_.events.emplace_back(std::make_unique<Event>()).get());
    const std::vector<bool> settled = SettledInstructions(plan_, index_, static_cast<size_t>(rank));
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      Lane& lane = *lanes[static_cast<size_t>(instruction.stream)];
      PreparedInstruction prepared;
      prepared.instruction = &instruction;
      prepared.index = static_cast<int>(i);
      prepared.settled = settled[i];
      prepared.writes_state = WritesState(program, instruction);
      if (prepared.writes_state) result_.writes_state = true;
      if (instruction.event >= 0) prepared.event = events[static_cast<size_t>(instruction.event)];
      BindOperands(program, prepared, lane.instructions.size(), lane);
      BindWork(program, prepared, rank);
      AddBodies(instruction, prepared, lane);
      lane.instructions.push_back(std::move(prepared));
    }
  }

  // Recomputes everything that depends on an address.
  void RebindLane(const Program& program, Lane& lane) {
    lane.feeds.clear();
    lane.slots.clear();
    for (size_t i = 0; i < lane.instructions.size(); ++i) {
      PreparedInstruction& prepared = lane.instructions[i];
      prepared.inputs.clear();
      prepared.outputs.clear();
      BindOperands(program, prepared, i, lane);
      if (prepared.instruction->kind == InstructionKind::kCollective) BindCollectiveOperands(program, prepared);
      for (size_t k = 0; k < prepared.bodies.size(); ++k) RebindLane(prepared.instruction->bodies[k], *prepared.bodies[k]);
    }
  }

  // A body runs on the lane of its instruction, whatever streams it has itself.
  void AddBodies(const Instruction& instruction, PreparedInstruction& prepared, Lane& lane) {
    for (const Program& program : instruction.bodies) {
      Lane& body = *prepared.bodies.emplace_back(std::make_unique<Lane>());
      body.rank = lane.rank;
      body.stream = lane.stream;
      body.threads = lane.threads;
      body.program = &program;
      body.top = lane.top < 0 ? prepared.index : lane.top;
      for (size_t i = 0; i < program.instructions.size(); ++i) {
        PreparedInstruction inner;
        inner.instruction = &program.instructions[i];
        inner.index = static_cast<int>(i);
        BindOperands(program, inner, body.instructions.size(), body);
        BindWork(program, inner, lane.rank);
        AddBodies(program.instructions[i], inner, body);
        body.instructions.push_back(std::move(inner));
      }
      lane.nested.push_back(&body);
    }
  }

  // A library generates a kernel's code when the kernel is created, which for some convolutions takes longer than running it. The threads
  // of the entry's streams share this work.
  void MakeKernels() {
    struct Launch {
      PreparedInstruction* prepared;
      const Program* program;
    };
    std::vector<Launch> launches;
    const auto add = [&](auto& self, Lane& lane, const Program& program) -> void {
      for (PreparedInstruction& prepared : lane.instructions) {
        if (prepared.instruction->kind == InstructionKind::kLaunch) launches.push_back({&prepared, &program});
        for (size_t i = 0; i < prepared.bodies.size(); ++i) self(self, *prepared.bodies[i], prepared.instruction->bodies[i]);
      }
    };
    int threads = 0;
    for (auto* lanes : {&result_.lanes, &result_.copies}) {
      for (const auto& lane : *lanes) {
        threads += lane->threads;
        add(add, *lane, plan_.programs[static_cast<size_t>(binding(lane->rank).program)]);
      }
    }
    RunOnThreads(static_cast<int64_t>(launches.size()), std::min(threads, NumCores()), [&](int64_t i) {
      const auto& [prepared, program] = launches[static_cast<size_t>(i)];
      const Instruction& instruction = *prepared->instruction;
      try {
        prepared->kernel = MakeCpuKernel(*FindKernel(instruction.kernel), CallOf(plan_, *program, instruction));
      } catch (const Error& error) {
        RethrowKernelError(error, instruction);
      }
    });
  }

  // Binds the operands of the lane's instruction `at`.
  void BindOperands(const Program& program, PreparedInstruction& prepared, size_t at, Lane& lane) {
    for (const Use& use : prepared.instruction->uses) {
      const Buffer* buffer = use.buffer < 0 ? nullptr : &program.buffers[static_cast<size_t>(use.buffer)];
      std::byte* address = buffer == nullptr ? nullptr : memory_.Address(*buffer, lane.rank);
      switch (use.access) {
        case Access::kRead:
          if (buffer != nullptr && buffer->arena == Arena::kFeed) BindFeed(*buffer, prepared, at, lane);
          if (prepared.instruction->kind == InstructionKind::kSend) prepared.bytes = buffer->bytes;
          BindSlot(buffer, false, prepared.inputs.size(), at, lane);
          prepared.inputs.push_back(address);
          break;
        case Access::kWrite:
          if (prepared.outputs.empty() && buffer != nullptr) prepared.bytes = buffer->bytes;
          BindSlot(buffer, true, prepared.outputs.size(), at, lane);
          prepared.outputs.push_back(address);
          break;
        case Access::kScratch: prepared.scratch = address; break;
      }
    }
  }

  static void BindSlot(const Buffer* buffer, bool written, size_t operand, size_t at, Lane& lane) {
    if (buffer == nullptr || buffer->arena != Arena::kInput) return;
    lane.slots.push_back({at, operand, written, buffer->offset});
  }

  // A rank's samples are read in place. If they are not contiguous, the verifier has ensured that the plan copies them.
  void BindFeed(const Buffer& buffer, PreparedInstruction& prepared, size_t at, Lane& lane) {
    const Feed& feed = entry_.feeds[static_cast<size_t>(buffer.feed)];
    const SampleCopy copy = CopyOf(feed.shape, DTypeBytes(feed.dtype), feed.batch_axis, feed.batch_inner, binding(lane.rank), entry_.batch);
    if (copy.runs > 1) prepared.samples = copy;
    lane.feeds.push_back({at, prepared.inputs.size(), buffer.feed, copy.runs > 1 ? 0 : copy.whole_offset});
  }

  void BindWork(const Program& program, PreparedInstruction& prepared, int rank) {
    const Instruction& instruction = *prepared.instruction;
    switch (instruction.kind) {
      case InstructionKind::kLaunch: {
        // The kernel is created last, in MakeKernels.
        if (FindKernel(instruction.kernel) == nullptr) {
          throw Error(ErrorCode::kPlan, "this build has no kernel '" + Escaped(instruction.kernel) + "'", Escaped(instruction.origin));
        }
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
        RankChannel*& channel = channels_[sends ? std::pair(rank, peer) : std::pair(peer, rank)];
        if (channel == nullptr) channel = result_.channels.emplace_back(MakeChannel(sends ? rank : peer, sends ? peer : rank)).get();
        prepared.channel = channel;
        return;
      }
      case InstructionKind::kIf:
      case InstructionKind::kLoop: return;
    }
  }

  bool IsOwn(int rank) const { return memory_.own().contains(rank); }

  std::unique_ptr<RankGroup> MakeGroup(size_t group, const std::vector<int>& members) const {
    if (std::all_of(members.begin(), members.end(), [&](int rank) { return IsOwn(rank); }))
      return std::make_unique<LocalGroup>(static_cast<int>(members.size()));
    return communicator_->MakeGroup(group, members, plan_.groups.size(), plan_.num_ranks());
  }

  std::unique_ptr<RankChannel> MakeChannel(int from, int to) const {
    if (IsOwn(from) && IsOwn(to)) return std::make_unique<LocalChannel>();
    return communicator_->MakeChannel(from, to, plan_.groups.size(), plan_.num_ranks());
  }

  void BindCollective(const Program& program, PreparedInstruction& prepared, int rank) {
    const Instruction& instruction = *prepared.instruction;
    const auto group = static_cast<size_t>(binding(rank).groups[static_cast<size_t>(instruction.group)]);
    const std::vector<int>& members = plan_.groups[group].ranks;
    if (groups_[group] == nullptr) {
      groups_[group] = result_.groups.emplace_back(MakeGroup(group, members)).get();
    }
    prepared.group = groups_[group];
    prepared.member = static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
    BindCollectiveOperands(program, prepared);
    if (instruction.collective == Collective::kBroadcast || instruction.collective == Collective::kAllGather) return;
    for (const RankGroup::Operand& operand : prepared.operands) {
      if (RankGroup::CanSum(operand.dtype)) continue;
      throw Error(ErrorCode::kUnsupported, "a sum over devices does not support " + std::string(DTypeName(operand.dtype)),
                  Escaped(instruction.origin));
    }
  }

  static void BindCollectiveOperands(const Program& program, PreparedInstruction& prepared) {
    const std::vector<Use>& uses = prepared.instruction->uses;
    const size_t count = uses.size() / 2;
    prepared.operands.clear();
    for (size_t k = 0; k < count; ++k) {
      const Buffer& read = program.buffers[static_cast<size_t>(uses[k].buffer)];
      const int written = uses[count + k].buffer;  // absent for a reduce to another rank
      const int64_t write_bytes = written < 0 ? 0 : program.buffers[static_cast<size_t>(written)].bytes;
      prepared.operands.push_back({read.dtype, prepared.inputs[k], prepared.outputs[k], read.bytes, write_bytes});
      if (!prepared.instruction->roots.empty()) prepared.operands.back().root = prepared.instruction->roots[k];
    }
  }

  const Plan& plan_;
  const size_t index_;
  const Entry& entry_;
  const Memory& memory_;
  Communicator* const communicator_;
  PreparedEntry result_;
  std::vector<RankGroup*> groups_;                        // indexed as Plan::groups
  std::map<std::pair<int, int>, RankChannel*> channels_;  // by sender and receiver
};

}  // namespace

PreparedEntry Prepare(const Plan& plan, int entry, const Memory& memory, Communicator* communicator) {
  return Preparation(plan, entry, memory, communicator).Run();
}

void Rebind(const Plan& plan, int entry, const Memory& memory, PreparedEntry& prepared) {
  Preparation(plan, entry, memory, nullptr).Rebind(prepared);
}

}  // namespace gradloom
