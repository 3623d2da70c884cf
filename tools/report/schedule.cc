#include "tools/report/schedule.h"

#include <map>
#include <tuple>

namespace gradloom {

bool IsSignal(const Instruction& i) { return i.kind == InstructionKind::kRecord || i.kind == InstructionKind::kWait; }

std::string InstructionName(const Instruction& instruction) {
  switch (instruction.kind) {
    case InstructionKind::kLaunch: return instruction.kernel;
    case InstructionKind::kCopy: return "copy";
    case InstructionKind::kRecord: return "record";
    case InstructionKind::kWait: return "wait";
    case InstructionKind::kCollective:
      return std::string(CollectiveName(instruction.collective)) + " of " + std::to_string(instruction.uses.size() / 2);
    case InstructionKind::kSend: return "send to " + std::to_string(instruction.peer);
    case InstructionKind::kRecv: return "recv from " + std::to_string(instruction.peer);
    case InstructionKind::kIf: return "if";
    case InstructionKind::kLoop: return "loop";
  }
  return "";
}

std::string StreamName(const Program& program, size_t stream) {
  static constexpr const char* kKinds[] = {"compute", "comm", "copy"};
  return std::string(kKinds[static_cast<size_t>(program.streams[stream].kind)]) + " " + std::to_string(stream);
}

int TrainingEntry(const Plan& plan) {
  for (size_t i = 0; i < plan.entries.size(); ++i) {
    if (plan.entries[i].kind == EntryKind::kStep || plan.entries[i].kind == EntryKind::kAccumulate) return static_cast<int>(i);
  }
  return -1;
}

// The k-th collective of a group is the same one on all members, and the k-th transfer between two ranks is the same one on both.
std::vector<Communication> MatchCommunication(const Plan& plan, const Entry& entry) {
  std::map<std::tuple<int, int, int>, size_t> known;  // (group or sender, receiver or -1, number of previous ones) -> index
  std::vector<Communication> matched;
  for (size_t r = 0; r < entry.ranks.size(); ++r) {
    const RankBinding& rank = entry.ranks[r];
    const Program& program = plan.programs[static_cast<size_t>(rank.program)];
    const int me = static_cast<int>(r);
    std::map<std::pair<int, int>, int> counts;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      if (!Communicates(instruction)) continue;
      const bool sends = instruction.kind == InstructionKind::kSend;
      const int peer = instruction.kind == InstructionKind::kCollective ? -1 : rank.peers[static_cast<size_t>(instruction.peer)];
      const std::pair<int, int> who =
          peer < 0 ? std::pair(rank.groups[static_cast<size_t>(instruction.group)], -1) : std::pair(sends ? me : peer, sends ? peer : me);
      const auto [at, fresh] = known.emplace(std::tuple(who.first, who.second, counts[who]++), matched.size());
      if (fresh) matched.emplace_back();
      Communication& encounter = matched[at->second];
      encounter.insert(sends ? encounter.begin() : encounter.end(), {me, static_cast<int>(i)});
    }
  }
  return matched;
}

std::vector<std::pair<int, int>> EventArrows(const Program& program) {
  std::vector<std::pair<int, int>> arrows;
  std::vector<int> recorded(static_cast<size_t>(program.num_events), -1), last(program.streams.size(), -1);
  std::vector<std::vector<int>> waits(program.streams.size());
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const auto stream = static_cast<size_t>(instruction.stream);
    if (instruction.kind == InstructionKind::kRecord) {
      recorded[static_cast<size_t>(instruction.event)] = last[stream];
    } else if (instruction.kind == InstructionKind::kWait) {
      waits[stream].push_back(recorded[static_cast<size_t>(instruction.event)]);
    } else {
      for (int before : waits[stream]) {
        if (before >= 0) arrows.emplace_back(before, static_cast<int>(i));
      }
      waits[stream].clear();
      last[stream] = static_cast<int>(i);
    }
  }
  return arrows;
}

}  // namespace gradloom
