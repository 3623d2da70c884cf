#include "runtime/plan/settled.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "runtime/base/checked.h"

namespace gradloom {
namespace {

struct ByteRange {
  int64_t begin = 0, end = 0;
};

// The instruction that wrote each byte last.
class LastWriters {
 public:
  static constexpr int kNobody = -1;

  void Write(ByteRange range, int writer) {
    if (range.begin >= range.end) return;
    Cut(range.begin);
    Cut(range.end);
    pieces_.erase(pieces_.lower_bound(range.begin), pieces_.lower_bound(range.end));
    pieces_[range.begin] = {range.end, writer};
  }

  // Calls f(part of the range, its writer), ascending; kNobody for bytes that were not written.
  template <typename F>
  void ForEach(ByteRange range, F f) const {
    auto next = pieces_.upper_bound(range.begin);
    if (next != pieces_.begin() && std::prev(next)->second.end > range.begin) --next;
    int64_t at = range.begin;
    for (; at < range.end && next != pieces_.end() && next->first < range.end; ++next) {
      if (next->first > at) f(ByteRange{at, next->first}, kNobody);
      const ByteRange part{std::max(at, next->first), std::min(range.end, next->second.end)};
      f(part, next->second.writer);
      at = part.end;
    }
    if (at < range.end) f(ByteRange{at, range.end}, kNobody);
  }

  // Whether the instruction wrote all bytes of the range last; kNobody: whether none was written.
  bool All(ByteRange range, int writer) const {
    bool all = true;
    ForEach(range, [&](ByteRange, int other) { all = all && other == writer; });
    return all;
  }

 private:
  struct Piece {
    int64_t end = 0;
    int writer = kNobody;
  };
  void Cut(int64_t at) {
    const auto next = pieces_.upper_bound(at);
    if (next == pieces_.begin()) return;
    auto& [begin, piece] = *std::prev(next);
    if (begin == at || piece.end <= at) return;
    const Piece rest = piece;
    piece.end = at;
    pieces_[at] = rest;
  }

  std::map<int64_t, Piece> pieces_;  // by first byte
};

class SettledSearch {
 public:
  SettledSearch(const Program& program, std::span<const int> fetched)
      : program_(program), fetched_(fetched), excluded_(program.instructions.size()), settled_(program.instructions.size()) {}

  std::vector<bool> Run() {
    if (!HasValidIds()) return settled_;
    for (const Instruction& instruction : program_.instructions) {
      ForUses(instruction, [&](const Buffer& buffer, Access access) {
        if (access != Access::kRead && buffer.arena == Arena::kState) written_state_.Write(RangeOf(buffer), 0);
      });
    }
    // An instruction that is found not to be settled makes its readers unsettled, and its writes may be in the way of others. Programs
    // need few rounds, because each excludes all that it finds.
    for (int round = 0; round < kMaxRounds; ++round) {
      if (!Round()) return settled_;
    }
    return std::vector<bool>(settled_.size());
  }

 private:
  static constexpr int kMaxRounds = 64;

  struct Needed {
    ByteRange range;
    int writer = 0;
  };

  bool HasValidIds() const {
    const auto valid = [&](int id) { return id >= 0 && static_cast<size_t>(id) < program_.buffers.size(); };
    const bool uses = std::all_of(program_.instructions.begin(), program_.instructions.end(), [&](const Instruction& instruction) {
      return std::all_of(instruction.uses.begin(), instruction.uses.end(),
                         [&](const Use& use) { return use.buffer == -1 || valid(use.buffer); });
    });
    const bool ranges = std::all_of(program_.buffers.begin(), program_.buffers.end(), [](const Buffer& buffer) {
      return buffer.offset >= 0 && buffer.bytes >= 0 && CheckedAdd(buffer.offset, buffer.bytes);
    });
    return uses && ranges && std::all_of(fetched_.begin(), fetched_.end(), [&](int id) { return id == -1 || valid(id); });
  }

  static ByteRange RangeOf(const Buffer& buffer) { return {buffer.offset, buffer.offset + buffer.bytes}; }

  template <typename F>
  void ForUses(const Instruction& instruction, F f) const {
    for (const Use& use : instruction.uses) {
      if (use.buffer >= 0) f(program_.buffers[static_cast<size_t>(use.buffer)], use.access);
    }
  }

  bool ReadsOnlySettled(const Buffer& buffer, const LastWriters& writers) const {
    switch (buffer.arena) {
      case Arena::kConstants: return true;
      case Arena::kState: return written_state_.All(RangeOf(buffer), LastWriters::kNobody);
      case Arena::kTransient: {
        bool all = true;
        writers.ForEach(RangeOf(buffer), [&](ByteRange, int writer) {
          all = all && writer != LastWriters::kNobody && settled_[static_cast<size_t>(writer)];
        });
        return all;
      }
      case Arena::kStep:
      case Arena::kFeed:
      case Arena::kInput: return false;
    }
    return false;
  }

  bool IsSettled(size_t i, const LastWriters& writers) const {
    const Instruction& instruction = program_.instructions[i];
    if (excluded_[i] || (instruction.kind != InstructionKind::kLaunch && instruction.kind != InstructionKind::kCopy)) return false;
    bool settled = true, writes = false;
    ForUses(instruction, [&](const Buffer& buffer, Access access) {
      if (access == Access::kRead) {
        settled = settled && ReadsOnlySettled(buffer, writers);
      } else {
        settled = settled && buffer.arena == Arena::kTransient;
        writes = writes || access == Access::kWrite;
      }
    });
    return settled && writes;
  }

  // Finds the settled instructions among those that are not excluded. Excludes those of them whose results do not stay; returns whether
  // there were any.
  bool Round() {
    LastWriters writers, unsettled;
    std::vector<Needed> needed;
    const auto need = [&](ByteRange range) {
      writers.ForEach(range, [&](ByteRange part, int writer) {
        if (writer != LastWriters::kNobody && settled_[static_cast<size_t>(writer)]) needed.push_back({part, writer});
      });
    };
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      settled_[i] = IsSettled(i, writers);
      ForUses(program_.instructions[i], [&](const Buffer& buffer, Access access) {
        if (!settled_[i] && access == Access::kRead && buffer.arena == Arena::kTransient) need(RangeOf(buffer));
      });
      ForUses(program_.instructions[i], [&](const Buffer& buffer, Access access) {
        if (access == Access::kRead || buffer.arena != Arena::kTransient) return;
        writers.Write(RangeOf(buffer), static_cast<int>(i));
        if (!settled_[i]) unsettled.Write(RangeOf(buffer), static_cast<int>(i));
      });
    }
    bool excluded = false;
    const auto exclude = [&](int writer) {
      excluded_[static_cast<size_t>(writer)] = true;
      excluded = true;
    };
    for (const auto& [range, writer] : needed) {
      if (!writers.All(range, writer) || !unsettled.All(range, LastWriters::kNobody)) exclude(writer);
    }
    for (const int id : fetched_) {
      const Buffer* const buffer = id < 0 ? nullptr : &program_.buffers[static_cast<size_t>(id)];
      if (buffer == nullptr || buffer->arena != Arena::kTransient) continue;
      writers.ForEach(RangeOf(*buffer), [&](ByteRange, int writer) {
        if (writer != LastWriters::kNobody && settled_[static_cast<size_t>(writer)]) exclude(writer);
      });
    }
    return excluded;
  }

  const Program& program_;
  const std::span<const int> fetched_;
  LastWriters written_state_;
  std::vector<bool> excluded_;
  std::vector<bool> settled_;
};

}  // namespace

std::vector<bool> SettledInstructions(const Program& program, std::span<const int> fetched) {
  return SettledSearch(program, fetched).Run();
}

std::vector<bool> SettledInstructions(const Plan& plan, size_t entry, size_t rank) {
  const Entry& of = plan.entries[entry];
  std::vector<int> fetched;
  for (size_t fetch = 0; fetch < of.fetches.size(); ++fetch) fetched.push_back(FetchedBuffer(of, rank, fetch));
  return SettledInstructions(plan.programs[static_cast<size_t>(of.ranks[rank].program)], fetched);
}

std::string SettledText(const Plan& plan) {
  std::string text;
  const auto is_cpu = [](const Target& target) { return target.device == DeviceKind::kCpu; };
  if (!std::all_of(plan.targets.begin(), plan.targets.end(), is_cpu)) return text;
  for (size_t entry = 0; entry < plan.entries.size(); ++entry) {
    std::set<int> seen;
    for (size_t rank = 0; rank < plan.entries[entry].ranks.size(); ++rank) {
      const int program = plan.entries[entry].ranks[rank].program;
      if (program < 0 || static_cast<size_t>(program) >= plan.programs.size() || !seen.insert(program).second) continue;
      const std::vector<bool> settled = SettledInstructions(plan, entry, rank);
      std::string line;
      for (size_t i = 0; i < settled.size(); ++i) {
        if (settled[i]) line += " #" + std::to_string(i);
      }
      if (line.empty()) continue;
      text += "settled: entry " + std::to_string(entry) + ", program " + std::to_string(program) + ":" + line + "\n";
    }
  }
  return text;
}

}  // namespace gradloom
