#include "tests/verify/simulator.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>

#include "runtime/base/philox.h"

namespace gradloom {
namespace {

uint64_t Join(uint64_t a, uint64_t b) { return Mix64(a * 31 + Mix64(b)); }
uint64_t NameOf(const std::string& text) { return std::hash<std::string>()(text); }

// The bytes of an arena, as ranges of symbolic values.
class SymbolicMemory {
 public:
  uint64_t Read(int64_t begin, int64_t end) const {
    uint64_t name = 0;
    for (const auto& [start, piece] : pieces_) {
      const int64_t from = std::max(start, begin), to = std::min(piece.end, end);
      if (from < to)
        name = Join(Join(Join(name, piece.value), static_cast<uint64_t>(from - start + piece.skip)), static_cast<uint64_t>(to - from));
    }
    return name;
  }

  void Write(int64_t begin, int64_t end, uint64_t value) {
    if (begin >= end) return;
    Cut(begin);
    Cut(end);
    pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(end));
    pieces_[begin] = {end, value, 0};
  }

 private:
  struct Piece {
    int64_t end;
    uint64_t value;
    int64_t skip;  // bytes of the value before this piece
  };
  void Cut(int64_t at) {
    auto after = pieces_.upper_bound(at);
    if (after == pieces_.begin()) return;
    auto& [start, piece] = *std::prev(after);
    if (start == at || piece.end <= at) return;
    pieces_[at] = {piece.end, piece.value, piece.skip + at - start};
    piece.end = at;
  }
  std::map<int64_t, Piece> pieces_;
};

struct RankMemory {
  SymbolicMemory state, transient, input;
};

class Simulation {
 public:
  Simulation(const Plan& plan, uint32_t seed) : plan_(plan), random_(seed) {
    memory_.resize(plan.entries[0].ranks.size());
    for (size_t r = 0; r < memory_.size(); ++r) {
      RankMemory& rank = memory_[r];
      const int place = plan.PlaceOf(r);
      rank.state.Write(0, plan.places[static_cast<size_t>(place)].state_bytes, NameOf("state" + std::to_string(place)));
      int64_t transient = 0;
      for (const Program& program : plan.programs) transient = std::max(transient, program.transient_bytes);
      rank.transient.Write(0, transient, Garbage());
    }
  }

  uint64_t Run() {
    uint64_t result = 0;
    for (int round = 0; round < 2; ++round) {
      for (const Entry& entry : plan_.entries) {
        if (!RunEntry(entry)) return Garbage();
        result = Join(result, Fetches(entry));
      }
    }
    return Join(result, States());
  }

  uint64_t RunRepeats(const LeftOut& left_out) {
    uint64_t result = 0;
    for (size_t e = 0; e < plan_.entries.size(); ++e) {
      const Entry& entry = plan_.entries[e];
      if (!RunEntry(entry)) return Garbage();
      if (!RunEntry(entry, [&](size_t rank) { return left_out(e, rank); })) return Garbage();
      result = Join(result, Fetches(entry));
    }
    return Join(result, States());
  }

 private:
  uint64_t Fetches(const Entry& entry) const {
    uint64_t result = 0;
    for (size_t f = 0; f < entry.fetches.size(); ++f) {
      size_t r = 0;
      while (FetchedBuffer(entry, r, f) < 0) ++r;
      const Program& program = plan_.programs[static_cast<size_t>(entry.ranks[r].program)];
      result = Join(result, Read(r, program.buffers[static_cast<size_t>(FetchedBuffer(entry, r, f))]));
    }
    return result;
  }

  uint64_t States() const {
    uint64_t result = 0;
    for (size_t r = 0; r < memory_.size(); ++r) {
      for (const StateTensor& state : plan_.state) {
        if (state.in_place(plan_.PlaceOf(r))) result = Join(result, memory_[r].state.Read(state.offset, state.offset + state.bytes));
      }
    }
    return result;
  }

  // A stream with its instructions. `running` means that the current instruction has begun but has not written its results.
  struct Lane {
    size_t rank;
    const Program* program;
    std::vector<const Instruction*> list;
    size_t next = 0;
    bool running = false;
    uint64_t inputs = 0;
    bool done() const { return next == list.size(); }
    const Instruction& head() const { return *list[next]; }
  };

  uint64_t Garbage() { return Join(random_(), random_()); }

  std::vector<Lane> LanesOf(const Program& program, size_t rank) {
    std::vector<Lane> lanes(program.streams.size(), Lane{rank, &program, {}});
    for (const Instruction& i : program.instructions) lanes[static_cast<size_t>(i.stream)].list.push_back(&i);
    return lanes;
  }

  // `left_out` of a rank: by instruction; null: none.
  bool RunEntry(const Entry& entry, const std::function<std::vector<bool>(size_t rank)>& left_out = nullptr) {
    entry_ = &entry;
    std::vector<Lane> lanes;
    for (size_t r = 0; r < entry.ranks.size(); ++r) {
      const Program& program = plan_.programs[static_cast<size_t>(entry.ranks[r].program)];
      const std::vector<bool> out = left_out ? left_out(r) : std::vector<bool>();
      for (Lane& lane : LanesOf(program, r)) {
        std::erase_if(lane.list,
                      [&](const Instruction* i) { return !out.empty() && out[static_cast<size_t>(i - program.instructions.data())]; });
        lanes.push_back(std::move(lane));
      }
    }
    return RunLanes(lanes);
  }

  bool RunLanes(std::vector<Lane>& lanes) {
    // Ranks may share a program, so the key of an event includes the rank.
    std::set<std::pair<size_t, int>> recorded;
    std::vector<size_t> order(lanes.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    while (true) {
      std::shuffle(order.begin(), order.end(), random_);
      bool moved = false, open = false;
      for (size_t at : order) {
        open |= !lanes[at].done();
        if (!lanes[at].done() && Advance(lanes, lanes[at], recorded)) {
          moved = true;
          break;
        }
      }
      if (!open) return true;
      if (!moved) return false;
    }
  }

  // Executes one half of an instruction; returns false if it has to wait.
  bool Advance(std::vector<Lane>& lanes, Lane& lane, std::set<std::pair<size_t, int>>& recorded) {
    const Instruction& i = lane.head();
    switch (i.kind) {
      case InstructionKind::kRecord: recorded.emplace(lane.rank, i.event); break;
      case InstructionKind::kWait:
        if (!recorded.contains({lane.rank, i.event})) return false;
        break;
      case InstructionKind::kCollective: return RunCollective(lanes, lane);
      case InstructionKind::kSend:
      case InstructionKind::kRecv: return Transfer(lanes, lane);
      case InstructionKind::kIf:
      case InstructionKind::kLoop: Bodies(lane, i); break;
      case InstructionKind::kLaunch:
      case InstructionKind::kCopy:
        if (!lane.running) {
          Begin(lane, i);
          return true;
        }
        End(lane, i);
        break;
    }
    ++lane.next;
    return true;
  }

  uint64_t Read(size_t rank, const Buffer& b) const {
    switch (b.arena) {
      case Arena::kState: return memory_[rank].state.Read(b.offset, b.offset + b.bytes);
      case Arena::kTransient: return memory_[rank].transient.Read(b.offset, b.offset + b.bytes);
      case Arena::kInput: return memory_[rank].input.Read(b.offset, b.offset + b.bytes);
      case Arena::kFeed:
        return Join(NameOf("feed"), static_cast<uint64_t>(b.feed) * 1000 + static_cast<uint64_t>(entry_->ranks[rank].shard_start));
      default: return Join(NameOf("given"), static_cast<uint64_t>(b.arena) * 1000000 + static_cast<uint64_t>(b.offset));
    }
  }

  void Write(size_t rank, const Buffer& b, uint64_t value) {
    RankMemory& memory = memory_[rank];
    (b.arena == Arena::kState   ? memory.state
     : b.arena == Arena::kInput ? memory.input
                                : memory.transient)
        .Write(b.offset, b.offset + b.bytes, value);
  }

  template <typename F>
  static void ForUses(const Lane& lane, const Instruction& i, Access access, F&& f) {
    for (const Use& use : i.uses) {
      if (use.access == access && use.buffer >= 0) f(lane.program->buffers[static_cast<size_t>(use.buffer)]);
    }
  }

  uint64_t Inputs(const Lane& lane, const Instruction& i) const {
    uint64_t name = 0;
    ForUses(lane, i, Access::kRead, [&](const Buffer& b) { name = Join(name, Read(lane.rank, b)); });
    return name;
  }

  void Begin(Lane& lane, const Instruction& i) {
    lane.inputs = Inputs(lane, i);
    for (Access access : {Access::kWrite, Access::kScratch}) {
      ForUses(lane, i, access, [&](const Buffer& b) { Write(lane.rank, b, Garbage()); });
    }
    lane.running = true;
  }

  void End(Lane& lane, const Instruction& i) {
    // Reads again, since another stream may have changed the inputs while the kernel ran. An output in place of an input is not such a
    // change.
    bool in_place = false;
    ForUses(lane, i, Access::kRead, [&](const Buffer& r) {
      ForUses(lane, i, Access::kWrite, [&](const Buffer& w) { in_place |= r.arena == w.arena && r.offset == w.offset; });
    });
    if (!in_place && Inputs(lane, i) != lane.inputs) lane.inputs = Garbage();
    uint64_t k = 0;
    ForUses(lane, i, Access::kWrite, [&](const Buffer& b) { Write(lane.rank, b, Join(Join(NameOf(i.kernel), lane.inputs), k++)); });
    ForUses(lane, i, Access::kScratch, [&](const Buffer& b) { Write(lane.rank, b, Garbage()); });
    lane.running = false;
  }

  void Bodies(const Lane& lane, const Instruction& i) {
    const uint64_t chosen = Mix64(Inputs(lane, i));
    const int64_t trips = i.kind == InstructionKind::kIf ? 1 : static_cast<int64_t>(chosen % static_cast<uint64_t>(i.trip_bound + 1));
    const Program& body = i.bodies[i.kind == InstructionKind::kIf ? chosen % 2 : 0];
    for (int64_t trip = 0; trip < trips; ++trip) {
      std::vector<Lane> lanes = LanesOf(body, lane.rank);
      RunLanes(lanes);
    }
    ForUses(lane, i, Access::kScratch, [&](const Buffer& b) { Write(lane.rank, b, Garbage()); });
  }

  int GroupOf(const Lane& lane) const { return entry_->ranks[lane.rank].groups[static_cast<size_t>(lane.head().group)]; }

  // Whether its result is the same on all members that have one.
  static bool Sums(const Instruction& i) { return i.collective == Collective::kAllReduceSum || i.collective == Collective::kReduceSum; }

  bool RunCollective(std::vector<Lane>& lanes, const Lane& lane) {
    const int group = GroupOf(lane);
    std::vector<Lane*> together;
    for (int rank : plan_.groups[static_cast<size_t>(group)].ranks) {
      const auto found = std::find_if(lanes.begin(), lanes.end(), [&](const Lane& other) {
        return other.rank == static_cast<size_t>(rank) && !other.done() && other.head().kind == InstructionKind::kCollective &&
               GroupOf(other) == group;
      });
      if (found == lanes.end()) return false;
      together.push_back(&*found);
    }
    uint64_t sum = 0, list = 0;
    for (const Lane* member : together) {
      const uint64_t mine = Join(static_cast<uint64_t>(member->head().collective), Inputs(*member, member->head()));
      sum += mine;
      list = Join(list, mine);
    }
    const uint64_t from_root =
        Inputs(*together[static_cast<size_t>(lane.head().root)], together[static_cast<size_t>(lane.head().root)]->head());
    for (size_t k = 0; k < together.size(); ++k) {
      const Instruction& i = together[k]->head();
      const uint64_t result = i.collective == Collective::kBroadcast   ? from_root
                              : i.collective == Collective::kAllGather ? list
                              : Sums(i)                                ? sum
                                                                       : Join(sum, k);
      ForUses(*together[k], i, Access::kWrite, [&](const Buffer& b) { Write(together[k]->rank, b, result); });
      ++together[k]->next;
    }
    return true;
  }

  bool Transfer(std::vector<Lane>& lanes, Lane& lane) {
    const size_t peer = static_cast<size_t>(entry_->ranks[lane.rank].peers[static_cast<size_t>(lane.head().peer)]);
    for (Lane& other : lanes) {
      if (other.rank != peer || other.done() || other.head().kind == lane.head().kind) continue;
      if (other.head().kind != InstructionKind::kSend && other.head().kind != InstructionKind::kRecv) continue;
      if (entry_->ranks[peer].peers[static_cast<size_t>(other.head().peer)] != static_cast<int>(lane.rank)) continue;
      Lane& sender = lane.head().kind == InstructionKind::kSend ? lane : other;
      Lane& receiver = lane.head().kind == InstructionKind::kSend ? other : lane;
      const uint64_t value = Inputs(sender, sender.head());
      ForUses(receiver, receiver.head(), Access::kWrite, [&](const Buffer& b) { Write(receiver.rank, b, value); });
      ++sender.next;
      ++receiver.next;
      return true;
    }
    return false;
  }

  const Plan& plan_;
  std::mt19937 random_;
  std::vector<RankMemory> memory_;
  const Entry* entry_ = nullptr;
};

}  // namespace

uint64_t Simulate(const Plan& plan, uint32_t seed) { return Simulation(plan, seed).Run(); }

uint64_t SimulateRepeats(const Plan& plan, uint32_t seed, const LeftOut& left_out) { return Simulation(plan, seed).RunRepeats(left_out); }

}  // namespace gradloom
