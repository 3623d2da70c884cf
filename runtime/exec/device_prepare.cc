#include "runtime/exec/device_prepare.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/checked.h"
#include "runtime/exec/communication_turns.h"
#include "runtime/exec/rethrow.h"
#include "runtime/plan/entry_names.h"

namespace gradloom {
namespace {

// Larger fetches are copied only on request.
constexpr int64_t kStagedFetchBytes = 4096;

std::string NameForProfilers(const Instruction& instruction, int index) {
  const std::string name = "#" + std::to_string(index) + " ";
  switch (instruction.kind) {
    case InstructionKind::kCopy: return name + "copy";
    case InstructionKind::kLaunch:
    case InstructionKind::kIf: return name + NodeOf(instruction);
    case InstructionKind::kLoop: return name + NodeOf(instruction);
    default: return name + std::string(CommunicationName(instruction));
  }
}

bool IsDecision(const Instruction& instruction) {
  return instruction.kind == InstructionKind::kIf || instruction.kind == InstructionKind::kLoop;
}

int64_t CountDecisions(const Program& program) {
  int64_t count = 0;
  for (const Instruction& instruction : program.instructions) {
    count += IsDecision(instruction) ? 1 : 0;
    for (const Program& body : instruction.bodies) count += CountDecisions(body);
  }
  return count;
}

// Marks runs of launches and copies, here and in bodies.
void MarkPieces(std::vector<DeviceInstruction>& list) {
  DeviceInstruction* head = nullptr;
  for (DeviceInstruction& prepared : list) {
    for (auto& body : prepared.bodies) MarkPieces(body);
    const InstructionKind kind = prepared.instruction->kind;
    if (kind != InstructionKind::kLaunch && kind != InstructionKind::kCopy) {
      head = nullptr;
      continue;
    }
    if (head == nullptr) head = &prepared;
    ++head->piece;
    head->piece_in_slots = head->piece_in_slots || prepared.inputs[0] != prepared.inputs[1] || prepared.outputs[0] != prepared.outputs[1];
  }
}

class DevicePreparation {
 public:
  DevicePreparation(const Plan& plan, int entry, DeviceMemories& memories, std::vector<KernelPlace>& places)
      : plan_(plan), entry_(plan.entries[static_cast<size_t>(entry)]), memories_(memories), places_(places) {}

  DeviceEntry Run(const std::function<void(size_t rank)>& begin_rank) {
    CompileAhead();
    DeviceEntry made;
    made.name = EntryName(entry_);
    const auto holds = [this](size_t rank) { return memories_.holds(rank); };
    turns_ = CommunicationTurns(plan_, entry_, holds);
    // NCCL requires that all processes capture an operation in a graph, or none does. So what others have counts, too.
    for (size_t rank = 0; rank < entry_.ranks.size(); ++rank) made.decides = made.decides || CountDecisions(program(rank)) > 0;
    for (size_t rank = 0; rank < entry_.ranks.size(); ++rank) {
      if (memories_.holds(rank) && begin_rank) begin_rank(rank);
      made.ranks.push_back(memories_.holds(rank) ? PrepareRank(rank) : DeviceRank());
    }
    for (size_t rank = 0; made.decides && rank < made.ranks.size(); ++rank) {
      for (auto& lane : made.ranks[rank].lanes) MarkPieces(lane);
    }
    StageFetches(made);
    return made;
  }

 private:
  // Devices compile the code of all their kernels before the first kernel is made.
  void CompileAhead() {
    std::map<Device*, std::vector<Device::KernelRequest>> requests;
    for (size_t rank = 0; rank < entry_.ranks.size(); ++rank) {
      if (memories_.holds(rank)) AddRequests(program(rank), requests[memories_.rank(rank).device.get()]);
    }
    for (auto& [device, kernels] : requests) device->CompileAhead(kernels);
  }

  void AddRequests(const Program& program, std::vector<Device::KernelRequest>& requests) {
    for (const Instruction& instruction : program.instructions) {
      for (const Program& body : instruction.bodies) AddRequests(body, requests);
      const KernelRow* const row = instruction.kind == InstructionKind::kLaunch ? FindKernel(instruction.kernel) : nullptr;
      if (row != nullptr) requests.push_back({row, CallOf(plan_, program, instruction), PreservesState(*row, program, instruction)});
    }
  }

  bool PreservesState(const KernelRow& row, const Program& program, const Instruction& launch) const {
    return row.preserves_state_on_refusal && memories_.keeps_state() && WritesState(program, launch);
  }

  const Program& program(size_t rank) const { return plan_.programs[static_cast<size_t>(entry_.ranks[rank].program)]; }

  DeviceRank PrepareRank(size_t rank) {
    const Program& program = this->program(rank);
    Device& device = *memories_.rank(rank).device;
    DeviceRank made;
    made.lanes.resize(program.streams.size());
    for (int i = 0; i < program.num_events; ++i) made.events.emplace_back(device, false);
    made.of_copies.resize(static_cast<size_t>(program.num_events));
    if (const int64_t decisions = CountDecisions(program); decisions > 0)
      made.decisions = StagingMemory(memories_.rank(rank).device, decisions * static_cast<int64_t>(sizeof(DecisionOperands)), true);
    int64_t decided = 0;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      const auto stream = static_cast<size_t>(instruction.stream);
      if (program.streams[stream].kind == StreamKind::kCopy) {
        AddInputCopy(program, instruction, rank, made);
        continue;
      }
      made.lanes[stream].push_back(Prepared(program, instruction, static_cast<int>(i), rank));
      AddBodies(rank, made.lanes[stream].back(), made.decisions, decided);
    }
    std::sort(made.copies.begin(), made.copies.end(), [](const InputCopy& a, const InputCopy& b) { return a.slot_offset < b.slot_offset; });
    for (const auto& lane : made.lanes) {
      for (const DeviceInstruction& prepared : lane) {
        if (prepared.apart) made.apart.push_back(&prepared);
      }
    }
    return made;
  }

  // A body is enqueued on the stream of its instruction, whatever streams it has itself. The order of its list satisfies their
  // dependencies.
  void AddBodies(size_t rank, DeviceInstruction& prepared, const StagingMemory& decisions, int64_t& decided) {
    if (!IsDecision(*prepared.instruction)) return;
    prepared.decision = new (decisions.at(decided++ * static_cast<int64_t>(sizeof(DecisionOperands)))) DecisionOperands;
    for (const Program& program : prepared.instruction->bodies) {
      std::vector<DeviceInstruction>& body = prepared.bodies.emplace_back();
      for (size_t i = 0; i < program.instructions.size(); ++i) {
        const InstructionKind kind = program.instructions[i].kind;
        if (kind == InstructionKind::kRecord || kind == InstructionKind::kWait) continue;
        body.push_back(Prepared(program, program.instructions[i], static_cast<int>(i), rank));
        AddBodies(rank, body.back(), decisions, decided);
      }
    }
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

  // `instruction` belongs to the plan and must outlive the result.
  DeviceInstruction Prepared(const Program& program, const Instruction& instruction, int index, size_t rank) {
    try {
      DeviceInstruction prepared = Bound(program, instruction, index, rank);
      BindWork(program, instruction, rank, prepared);
      if (prepared.apart) prepared.turn = turns_.at({rank, index});
      return prepared;
    } catch (const Error& error) {
      RethrowAt(error, instruction);
    }
  }

  // The prepared instruction with its operands bound.
  DeviceInstruction Bound(const Program& program, const Instruction& instruction, int index, size_t rank) {
    DeviceInstruction prepared;
    prepared.instruction = &instruction;
    prepared.program = &program;
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
    return prepared;
  }

  void BindWork(const Program& program, const Instruction& instruction, size_t rank, DeviceInstruction& prepared) {
    const RankBinding& binding = entry_.ranks[rank];
    switch (instruction.kind) {
      case InstructionKind::kLaunch: {
        const KernelRow* const row = FindKernel(instruction.kernel);
        if (row == nullptr)
          throw Error(ErrorCode::kPlan, "this build has no kernel '" + Escaped(instruction.kernel) + "'", "", "compile the model again");
        places_.push_back({&instruction});
        prepared.kernel = memories_.rank(rank).device->NewKernel(
            *row, CallOf(plan_, program, instruction), static_cast<int>(places_.size()) - 1, PreservesState(*row, program, instruction));
        return;
      }
      case InstructionKind::kCopy: prepared.keeps_state = memories_.keeps_state() && WritesState(program, instruction); return;
      case InstructionKind::kRecord:
      case InstructionKind::kWait:
      case InstructionKind::kIf:
      case InstructionKind::kLoop: return;
      case InstructionKind::kCollective: {
        prepared.group = binding.groups[static_cast<size_t>(instruction.group)];
        for (const int member : plan_.groups[static_cast<size_t>(prepared.group)].ranks)
          prepared.apart = prepared.apart || !memories_.holds(static_cast<size_t>(member));
        const size_t count = instruction.uses.size() / 2;
        for (size_t slot = 0; slot < 2; ++slot) {
          for (size_t k = 0; k < count; ++k) {
            const Buffer& read = program.buffers[static_cast<size_t>(instruction.uses[k].buffer)];
            const int written = instruction.uses[count + k].buffer;  // absent for a reduce to another rank
            const int64_t write_bytes = written < 0 ? 0 : program.buffers[static_cast<size_t>(written)].bytes;
            prepared.operands[slot].push_back({read.dtype, prepared.inputs[slot][k], prepared.outputs[slot][k], read.bytes, write_bytes});
            if (!instruction.roots.empty()) prepared.operands[slot].back().root = instruction.roots[k];
          }
        }
        return;
      }
      case InstructionKind::kSend:
      case InstructionKind::kRecv:
        prepared.peer = binding.peers[static_cast<size_t>(instruction.peer)];
        prepared.apart = !memories_.holds(static_cast<size_t>(prepared.peer));
        return;
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
  std::map<std::pair<size_t, int>, int> turns_;  // by rank and index in its program
};

}  // namespace

DeviceEntry PrepareOnDevices(const Plan& plan, int entry, DeviceMemories& memories, std::vector<KernelPlace>& places,
                             const std::function<void(size_t rank)>& begin_rank) {
  return DevicePreparation(plan, entry, memories, places).Run(begin_rank);
}

}  // namespace gradloom
