#include "runtime/exec/device_prepare.h"

#include <string>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/exec/rethrow.h"
#include "runtime/plan/entry_names.h"

namespace gradloom {
namespace {

// Larger fetches are copied when somebody asks for them.
constexpr int64_t kStagedFetchBytes = 4096;

std::string NameForProfilers(const Instruction& instruction, int index) {
  std::string name = "#" + std::to_string(index) + " ";
  if (instruction.kind == InstructionKind::kLaunch) return name + NodeOf(instruction);
  return name + (instruction.kind == InstructionKind::kCopy ? "copy" : std::string(MeetingName(instruction)));
}

class DevicePreparation {
 public:
  DevicePreparation(const Plan& plan, int entry, DeviceMemories& memories, std::vector<KernelPlace>& places)
      : plan_(plan), entry_(plan.entries[static_cast<size_t>(entry)]), memories_(memories), places_(places) {}

  DeviceEntry Run() {
    DeviceEntry made;
    made.name = EntryName(entry_);
    for (size_t rank = 0; rank < entry_.ranks.size(); ++rank)
      made.ranks.push_back(memories_.holds(rank) ? PrepareRank(rank) : DeviceRank());
    StageFetches(made);
    return made;
  }

 private:
  const Program& program(size_t rank) const { return plan_.programs[static_cast<size_t>(entry_.ranks[rank].program)]; }

  DeviceRank PrepareRank(size_t rank) {
    const Program& program = this->program(rank);
    Device& device = *memories_.rank(rank).device;
    DeviceRank made;
    made.lanes.resize(program.streams.size());
    for (int i = 0; i < program.num_events; ++i) made.events.emplace_back(device, false);
    made.of_copies.resize(static_cast<size_t>(program.num_events));
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      const auto stream = static_cast<size_t>(instruction.stream);
      if (program.streams[stream].kind == StreamKind::kCopy) {
        AddInputCopy(program, instruction, rank, made);
        continue;
      }
      try {
        made.lanes[stream].push_back(Prepared(program, static_cast<int>(i), rank));
      } catch (const Error& error) {
        RethrowAt(error, instruction);
      }
    }
    return made;
  }

  void AddInputCopy(const Program& program, const Instruction& instruction, size_t rank, DeviceRank& made) {
    if (instruction.kind == InstructionKind::kRecord) made.of_copies[static_cast<size_t>(instruction.event)] = true;
    if (instruction.kind != InstructionKind::kCopy) return;
    const Buffer& from = program.buffers[static_cast<size_t>(instruction.uses[0].buffer)];
    const Buffer& to = program.buffers[static_cast<size_t>(instruction.uses[1].buffer)];
    const Feed& feed = entry_.feeds[static_cast<size_t>(from.feed)];
    made.copies.push_back({from.feed,
                           CopyOf(feed.shape, DTypeBytes(feed.dtype), feed.batch_axis, feed.batch_inner, entry_.ranks[rank], entry_.batch),
                           to.bytes, to.offset});
  }

  DeviceInstruction Prepared(const Program& program, int index, size_t rank) {
    const Instruction& instruction = program.instructions[static_cast<size_t>(index)];
    DeviceInstruction prepared;
    prepared.instruction = &instruction;
    prepared.index = index;
    prepared.name = NameForProfilers(instruction, index);
    for (const Use& use : instruction.uses) {
      const Buffer* const buffer = use.buffer < 0 ? nullptr : &program.buffers[static_cast<size_t>(use.buffer)];
      if (buffer != nullptr && buffer->arena == Arena::kFeed) {
        throw Error(ErrorCode::kPlan, "a device cannot read the caller's memory", "feed " + std::to_string(buffer->feed),
                    "compile the plan again with this version");
      }
      for (int slot = 0; slot < 2; ++slot) {
        std::byte* const address = buffer == nullptr ? nullptr : memories_.Address(*buffer, rank, slot);
        const auto s = static_cast<size_t>(slot);
        if (use.access == Access::kRead) prepared.inputs[s].push_back(address);
        if (use.access == Access::kWrite) prepared.outputs[s].push_back(address);
        if (use.access == Access::kScratch) prepared.scratch = address;
      }
      const bool moved = use.access == Access::kWrite || instruction.kind == InstructionKind::kSend;
      if (moved && prepared.bytes == 0 && buffer != nullptr) prepared.bytes = buffer->bytes;
    }
    BindWork(program, instruction, rank, prepared);
    return prepared;
  }

  void BindWork(const Program& program, const Instruction& instruction, size_t rank, DeviceInstruction& prepared) {
    const RankBinding& binding = entry_.ranks[rank];
    switch (instruction.kind) {
      case InstructionKind::kLaunch: {
        const KernelRow* const row = FindKernel(instruction.kernel);
        if (row == nullptr) throw Error(ErrorCode::kPlan, "no kernel '" + Escaped(instruction.kernel) + "' in this build");
        places_.push_back({&instruction});
        prepared.kernel =
            memories_.rank(rank).device->NewKernel(*row, CallOf(plan_, program, instruction), static_cast<int>(places_.size()) - 1);
        return;
      }
      case InstructionKind::kCopy:
      case InstructionKind::kRecord:
      case InstructionKind::kWait: return;
      case InstructionKind::kCollective: {
        prepared.group = binding.groups[static_cast<size_t>(instruction.group)];
        const size_t count = instruction.uses.size() / 2;
        for (size_t slot = 0; slot < 2; ++slot) {
          for (size_t k = 0; k < count; ++k) {
            const Buffer& read = program.buffers[static_cast<size_t>(instruction.uses[k].buffer)];
            const Buffer& write = program.buffers[static_cast<size_t>(instruction.uses[count + k].buffer)];
            prepared.operands[slot].push_back({read.dtype, prepared.inputs[slot][k], prepared.outputs[slot][k], read.bytes, write.bytes});
          }
        }
        return;
      }
      case InstructionKind::kSend:
      case InstructionKind::kRecv: prepared.peer = binding.peers[static_cast<size_t>(instruction.peer)]; return;
      case InstructionKind::kIf:
      case InstructionKind::kLoop: throw Error(ErrorCode::kUnsupported, "this executor does not run If and Loop yet");
    }
  }

  void StageFetches(DeviceEntry& made) {
    int64_t bytes = 0;
    for (size_t f = 0; f < entry_.fetches.size(); ++f) {
      for (size_t rank = memories_.first(); rank < memories_.last(); ++rank) {
        const int id = FetchedBuffer(entry_, rank, f);
        if (id < 0) continue;
        const Buffer& buffer = program(rank).buffers[static_cast<size_t>(id)];
        if (buffer.arena == Arena::kFeed || buffer.bytes > kStagedFetchBytes) continue;
        made.fetches.push_back({static_cast<int>(f), rank, &buffer, bytes});
        bytes = AlignUp(bytes + buffer.bytes, kAlignmentBytes);
      }
    }
    made.fetched = StagingMemory(memories_.rank(memories_.first()).device, bytes, true);
  }

  const Plan& plan_;
  const Entry& entry_;
  DeviceMemories& memories_;
  std::vector<KernelPlace>& places_;
};

}  // namespace

DeviceEntry PrepareOnDevices(const Plan& plan, int entry, DeviceMemories& memories, std::vector<KernelPlace>& places) {
  return DevicePreparation(plan, entry, memories, places).Run();
}

}  // namespace gradloom
