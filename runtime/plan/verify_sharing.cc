// Checks "ranks": that the ranks that hold a state give it the same next value, whatever their samples are, and the same for fetches that
// several ranks provide.
//
// Every value of a program gets a number (verify_numbers.h), so that values of all programs of the entry that are computed alike from the
// same values have the same number. It follows from the flow of data alone, and not from names or phases.
// * Constants, step parameters, undivided feeds and states are the same on all ranks that have them, states by induction over the steps.
//   Divided feeds, the number of the first sample and partial states are each rank's own, and so is what depends on them.
// * A collective has the same result on all members of its group that have one, except that a reduce-scatter gives each its own part.
// * A value that is received is the one that was sent. It is the rank's own, unless all ranks that run the program receive the same one.
// * Any other result is what its operator makes of its operands. A branch depends on its condition, a loop on its number of iterations.
// What one rank alone has of a program is the same on all ranks that run it. So a state's next value must have the same number in all
// programs of ranks that hold it, and may be a rank's own only where one rank runs the program. A gradient must be summed over all of these
// ranks, and if one device computes it from the samples of all, it must send it to the others.
//
// A value that all ranks have may still be one addend of each of them, such as the gradient of a bias that each sample changes alike. So
// sums of such values are accepted, except for a sum whose result is only summed again.
//
// Every program is walked once for an entry, however many ranks run it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/plan/verify_numbers.h"
#include "runtime/plan/verify_scope.h"

namespace gradloom::verify {
namespace {

// The walks through the body of a loop until it is known which of what it carries depends on a rank's own values after any number of
// iterations. If they do not suffice, or loops are nested deeper, all of it does if any of it does.
constexpr int kMaxWalks = 4;
constexpr int kMaxWalkedDepth = 3;

// The bytes of a buffer, by which a body and the program around it have the same value.
using Bytes = std::tuple<Arena, int, int64_t, int64_t>;
Bytes BytesIn(const Buffer& buffer) { return {buffer.arena, buffer.feed, buffer.offset, buffer.bytes}; }

int FamilyOf(const Program& program, int buffer) {
  const int whole = program.buffers[static_cast<size_t>(buffer)].whole;
  return whole < 0 ? buffer : whole;
}

class SharingCheck : EntryRanks {
 public:
  SharingCheck(const EntryRanks& ranks, const std::vector<Transfer>& transfers) : EntryRanks(ranks) {
    const auto same_shard = [&](const RankBinding& rank) {
      return rank.shard_start == entry_.ranks[0].shard_start && rank.shard_length == entry_.ranks[0].shard_length;
    };
    divided_ = !std::all_of(entry_.ranks.begin(), entry_.ranks.end(), same_shard);
    AddFlows();
    for (const Transfer& transfer : transfers) {
      FlowOf(transfer.receiver).received[transfer.recv].push_back({transfer.sender, transfer.send});
    }
  }

  void Run() {
    std::vector<size_t> ready(flows_.size());
    for (size_t f = 0; f < ready.size(); ++f) ready[f] = ready.size() - 1 - f;
    for (size_t done = 0; !faults_.full();) {
      if (ready.empty()) {
        // Programs that wait for each other, as ranks do not: what the first of them receives next is taken to be the rank's own.
        while (done < flows_.size() && flows_[done].finished()) ++done;
        if (done == flows_.size()) break;
        flows_[done].forced = flows_[done].next;
        ready.push_back(done);
      }
      const size_t f = ready.back(), before = flows_[f].next;
      ready.pop_back();
      Advance(f);
      // Otherwise those that wait for each other would wake each other for ever.
      if (flows_[f].next == before) continue;
      for (size_t waiting : std::exchange(flows_[f].waiting, {})) ready.push_back(waiting);
    }
    for (size_t f = 0; f < flows_.size() && !faults_.full(); ++f) CheckSummedOnce(flows_[f]);
    for (size_t f = 0; f < entry_.fetches.size() && !faults_.full(); ++f) CheckFetched(f);
  }

 private:
  // What has been written of a buffer.
  struct Piece {
    int64_t bytes = 0;
    Value value;
  };
  // What a body is given and returns, by its bytes.
  using Shared = std::map<Bytes, Value>;

  // The values of a program or a body.
  struct Values {
    const Program& of;
    std::vector<std::map<int64_t, Piece>> pieces;  // by whole buffer, and by offset
    Shared given{};                                // of a body

    explicit Values(const Program& program) : of(program), pieces(program.buffers.size()) {}
  };

  // A collective among those of its group.
  struct Turn {
    int group = 0, number = 0;
    bool same = true;  // whether it is the same one for all ranks that run the program
  };
  struct Source {
    size_t rank = 0;
    int send = 0;
  };

  // A program of the entry.
  struct Flow {
    size_t rank;  // the first that runs it
    bool alone;   // whether no other rank does
    const Tables* tables;
    Values values;
    std::map<int, Turn> turns{};                    // by collective
    std::map<int, std::vector<Source>> received{};  // by instruction that receives
    std::map<int, int> last_write{};                // by state
    std::vector<size_t> waiting{};                  // flows that wait for this one
    size_t next = 0;                                // the first instruction that has not been walked
    size_t forced = static_cast<size_t>(-1);        // an instruction that receives, and that does not wait for what is sent

    bool finished() const { return next == values.of.instructions.size(); }
  };

  // The next value of a state that has been found first.
  struct Next {
    Value value;
    size_t rank = 0;
    int instruction = 0;
  };

  void AddFlows() {
    std::set<std::pair<int, std::vector<int>>> seen;  // programs with what they are bound to
    for (size_t r = 0; r < entry_.ranks.size(); ++r) {
      const RankBinding& rank = entry_.ranks[r];
      const auto [found, fresh] = flow_of_.emplace(rank.program, flows_.size());
      if (fresh) {
        const int place = program(r).place;
        flows_.push_back({r, true, &tables_.try_emplace(place, plan_, place).first->second, Values(program(r))});
        FindLastWrites(flows_.back());
      }
      Flow& flow = flows_[found->second];
      flow.alone = fresh;
      if (!seen.emplace(rank.program, rank.groups).second) continue;
      std::map<int, int> numbers;  // by group: its collectives so far
      for (int i : facts(r).communication) {
        const Instruction& instruction = program(r).instructions[static_cast<size_t>(i)];
        if (instruction.kind != InstructionKind::kCollective) continue;
        const int group = GroupOf(r, instruction), number = numbers[group]++;
        const auto [known, first] = flow.turns.emplace(i, Turn{group, number});
        if (!first) known->second.same &= known->second.group == group && known->second.number == number;
      }
    }
  }

  Flow& FlowOf(size_t rank) { return flows_[flow_of_.at(entry_.ranks[rank].program)]; }

  int GroupOf(size_t rank, const Instruction& collective) const { return entry_.ranks[rank].groups[static_cast<size_t>(collective.group)]; }

  // Walks the program up to the next instruction that receives what has not been walked yet.
  void Advance(size_t f) {
    Flow& flow = flows_[f];
    for (; !flow.finished(); ++flow.next) {
      const Instruction& instruction = flow.values.of.instructions[flow.next];
      const int index = static_cast<int>(flow.next);
      if (instruction.kind == InstructionKind::kRecv) {
        if (flow.forced != flow.next) {
          for (const Source& source : flow.received[index]) {
            Flow& sender = FlowOf(source.rank);
            if (sender.next > static_cast<size_t>(source.send)) continue;
            sender.waiting.push_back(f);
            return;
          }
        }
        Write(flow.values, instruction.uses[0].buffer, flow.forced == flow.next ? numbers_.Fresh() : Received(flow, index));
      } else if (instruction.kind == InstructionKind::kCollective) {
        Collect(flow, index);
      } else {
        Walk(flow, flow.values, instruction, 0);
      }
      CheckStates(flow, index);
    }
  }

  void Collect(Flow& flow, int index) {
    const Instruction& instruction = flow.values.of.instructions[static_cast<size_t>(index)];
    const Turn& turn = flow.turns.at(index);
    const bool scatters = instruction.collective == Collective::kReduceScatterSum;
    int64_t output = 0;
    for (const Use& use : instruction.uses) {
      if (use.access != Access::kWrite) continue;
      ValueKey key("collective");
      key.Add(int64_t{turn.group}).Add(int64_t{turn.number}).Add(output++).Add(scatters ? static_cast<int64_t>(flow.rank) : -1);
      const int number = numbers_.Of(key).number;
      if (use.buffer >= 0) Write(flow.values, use.buffer, {number, scatters || !turn.same});
    }
  }

  Value Received(Flow& flow, int index) {
    Value received;
    for (const Source& source : flow.received[index]) {
      Flow& sender = FlowOf(source.rank);
      Value sent = Read(sender, sender.values, sender.values.of.instructions[static_cast<size_t>(source.send)].uses[0].buffer);
      if (sent.own && !sender.alone) sent = numbers_.Of(ValueKey("of a rank").Add(static_cast<int64_t>(source.rank)).Add(sent));
      if (received.number >= 0 && received.number != sent.number) return numbers_.Fresh();
      received = {sent.number, false};
    }
    return received;
  }

  void Write(Values& values, int buffer, const Value& value) {
    const Buffer& written = values.of.buffers[static_cast<size_t>(buffer)];
    if (written.bytes > 0) values.pieces[static_cast<size_t>(FamilyOf(values.of, buffer))][written.offset] = {written.bytes, value};
  }

  Value Read(const Flow& flow, const Values& values, int buffer) {
    const Buffer& read = values.of.buffers[static_cast<size_t>(buffer)];
    if (read.bytes == 0) return numbers_.Of(ValueKey("no elements"));
    const auto family = static_cast<size_t>(FamilyOf(values.of, buffer));
    const std::map<int64_t, Piece>& pieces = values.pieces[family];
    if (pieces.empty()) {
      const Buffer& whole = values.of.buffers[family];
      const auto found = values.given.find(BytesIn(whole));
      return PartOf({whole.bytes, found != values.given.end() ? found->second : Given(flow, whole)}, read, read.offset - whole.offset);
    }
    const auto after = pieces.upper_bound(read.offset);
    if (after != pieces.begin()) {
      const auto& [offset, piece] = *std::prev(after);
      if (read.offset + read.bytes <= offset + piece.bytes) return PartOf(piece, read, read.offset - offset);
    }
    ValueKey key("parts");
    for (auto it = pieces.lower_bound(read.offset); it != pieces.end() && it->first < read.offset + read.bytes; ++it)
      key.Add(it->first - read.offset).Add(it->second.bytes).Add(it->second.value);
    return numbers_.Of(key);
  }

  // Which elements are read at this offset depends on the type and layout, which values are numbered without.
  Value PartOf(const Piece& piece, const Buffer& read, int64_t offset) {
    if (read.bytes == piece.bytes) return piece.value;
    ValueKey key("part");
    key.Add(piece.value).Add(offset).Add(read.bytes).Add(static_cast<int64_t>(read.dtype)).Add(read.layout.ToString());
    return numbers_.Of(key);
  }

  // A value from before the step, which has elements.
  Value Given(const Flow& flow, const Buffer& buffer) {
    const auto numbered = [&](std::string_view kind, int64_t index) { return numbers_.Of(ValueKey(kind).Add(index)); };
    const auto of_rank = [&](std::string_view kind, int64_t index) {
      const RankBinding& rank = entry_.ranks[flow.rank];
      ValueKey key(kind);
      key.Add(index).Add(rank.shard_start).Add(rank.shard_length);
      return Value{numbers_.Of(key).number, true};
    };
    switch (buffer.arena) {
      case Arena::kConstants: return ConstantAt(flow, buffer);
      case Arena::kStep: return divided_ && buffer.offset == plan_.step.first ? of_rank("first", 0) : numbered("step", buffer.offset);
      case Arena::kFeed: {
        const bool divided = divided_ && entry_.feeds[static_cast<size_t>(buffer.feed)].batch_axis >= 0;
        return divided ? of_rank("samples", buffer.feed) : numbered("feed", buffer.feed);
      }
      case Arena::kState: {
        const int state = flow.tables->state.at(buffer.offset);
        const bool partial = plan_.state[static_cast<size_t>(state)].partial;
        if (!partial) return numbered("state", state);
        return {numbers_.Of(ValueKey("part of rank").Add(static_cast<int64_t>(flow.rank)).Add(int64_t{state})).number, true};
      }
      case Arena::kInput:
      case Arena::kTransient: break;
    }
    return numbers_.Fresh();
  }

  Value ConstantAt(const Flow& flow, const Buffer& buffer) {
    const int index = flow.tables->constants.at(buffer.offset);
    const Tensor& value = plan_.constants[static_cast<size_t>(index)].value;
    const bool is_number = value.elements() == 1 && (value.dtype() == DType::kFloat32 || Is16BitFloat(value.dtype()));
    if (is_number) return numbers_.Number(static_cast<float>(ElementAsDouble(value.view(), 0)));
    return numbers_.Of(ValueKey("constant").Add(int64_t{FirstEqual(index)}));
  }

  // Places may have copies of a constant. Returns the first that was seen with the same elements.
  int FirstEqual(int index) {
    const auto known = first_equal_.find(index);
    if (known != first_equal_.end()) return known->second;
    const auto value = [&](int i) -> const Tensor& { return plan_.constants[static_cast<size_t>(i)].value; };
    const Tensor& own = value(index);
    std::vector<int>& others = distinct_constants_[{own.dtype(), own.bytes()}];
    const auto equal = std::find_if(others.begin(), others.end(), [&](int other) {
      return std::memcmp(value(other).data(), own.data(), static_cast<size_t>(own.bytes())) == 0;
    });
    if (equal == others.end()) return first_equal_[index] = others.emplace_back(index);
    return first_equal_[index] = *equal;
  }

  // Notes the results of a launch, a copy, a branch or a loop.
  void Walk(const Flow& flow, Values& values, const Instruction& instruction, int depth) {
    switch (instruction.kind) {
      case InstructionKind::kIf: return WalkIf(flow, values, instruction, depth);
      case InstructionKind::kLoop: return WalkLoop(flow, values, instruction, depth);
      case InstructionKind::kCopy: return Write(values, instruction.uses[1].buffer, Read(flow, values, instruction.uses[0].buffer));
      case InstructionKind::kLaunch: break;
      default: return;
    }
    std::vector<Value> inputs;
    std::vector<int> outputs;
    for (const Use& use : instruction.uses) {
      if (use.access == Access::kWrite) outputs.push_back(use.buffer);
      if (use.access == Access::kRead) inputs.push_back(use.buffer < 0 ? Value() : Read(flow, values, use.buffer));
    }
    const std::vector<Value> results = numbers_.ResultsOf(CallOf(plan_, values.of, instruction), inputs);
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (outputs[k] >= 0) Write(values, outputs[k], results[k]);
    }
  }

  static const Buffer& At(const Program& program, const Use& use) { return program.buffers[static_cast<size_t>(use.buffer)]; }

  Shared ReadBy(const Flow& flow, const Values& values, const Instruction& instruction) {
    Shared read;
    for (const Use& use : instruction.uses) {
      if (use.access == Access::kRead && use.buffer >= 0) read[BytesIn(At(values.of, use))] = Read(flow, values, use.buffer);
    }
    return read;
  }

  // Returns what the body's writes have at its end; of several at the same place the last one counts.
  Shared WalkBody(const Flow& flow, const Program& body, const Shared& given, int depth) {
    Values values(body);
    values.given = given;
    Shared made;
    for (const Instruction& instruction : body.instructions) {
      Walk(flow, values, instruction, depth + 1);
      for (const Use& use : instruction.uses) {
        if (use.access == Access::kWrite && use.buffer >= 0) made[BytesIn(At(body, use))] = Read(flow, values, use.buffer);
      }
    }
    return made;
  }

  Value ValueOf(const Shared& shared, const Bytes& bytes) {
    const auto found = shared.find(bytes);
    return found == shared.end() ? numbers_.Fresh() : found->second;
  }

  Value OperandOf(const Flow& flow, const Values& values, const Instruction& instruction, size_t use) {
    const int buffer = instruction.uses[use].buffer;
    return buffer < 0 ? Value() : Read(flow, values, buffer);
  }

  void WalkIf(const Flow& flow, Values& values, const Instruction& branch, int depth) {
    const Shared given = ReadBy(flow, values, branch);
    const Value condition = OperandOf(flow, values, branch, 0);
    std::vector<Shared> made;
    for (const Program& body : branch.bodies) made.push_back(WalkBody(flow, body, given, depth));
    for (const Use& use : branch.uses) {
      if (use.access != Access::kWrite || use.buffer < 0) continue;
      ValueKey key("if");
      key.Add(condition);
      for (const Shared& of_body : made) key.Add(ValueOf(of_body, BytesIn(At(values.of, use))));
      Write(values, use.buffer, numbers_.Of(key));
    }
  }

  // What a loop carries from one iteration to the next: each result is written where its value before the first iteration was.
  struct Carried {
    int buffer;
    Bytes bytes;
    Value before;      // the first iteration
    bool own;          // whether it is, before any iteration
    Value after = {};  // one iteration, in which what is carried has numbers of its own
  };

  void WalkLoop(const Flow& flow, Values& values, const Instruction& loop, int depth) {
    const Shared given = ReadBy(flow, values, loop);
    const Value trips = OperandOf(flow, values, loop, 0);
    std::vector<Carried> carried;
    for (const Use& use : loop.uses) {
      if (use.access != Access::kWrite) continue;
      const Bytes bytes = BytesIn(At(values.of, use));
      const Value before = ValueOf(given, bytes);
      carried.push_back({use.buffer, bytes, before, before.own});
    }
    Value condition;
    const int walks = depth < kMaxWalkedDepth ? kMaxWalks : 1;
    bool changed = true;
    for (int walk = 0; walk < walks && changed; ++walk) {
      Shared inside = given;
      for (size_t k = 0; k < carried.size(); ++k) {
        const ValueKey key = ValueKey("carried").Add(int64_t{depth}).Add(static_cast<int64_t>(k));
        inside[carried[k].bytes] = {numbers_.Of(key).number, carried[k].own};
      }
      if (loop.uses[1].buffer >= 0) condition = ValueOf(inside, BytesIn(At(values.of, loop.uses[1])));
      const Shared made = WalkBody(flow, loop.bodies[0], inside, depth);
      changed = false;
      for (Carried& one : carried) {
        one.after = ValueOf(made, one.bytes);
        const bool own = one.own || one.after.own || trips.own || condition.own;
        changed |= own != one.own;
        one.own = own;
      }
    }
    if (changed) {
      for (Carried& one : carried) one.own = true;
    }
    WriteCarried(values, carried, trips, condition);
  }

  // What is not a rank's own depends on nothing that is.
  void WriteCarried(Values& values, const std::vector<Carried>& carried, const Value& trips, const Value& condition) {
    for (const bool own : {false, true}) {
      ValueKey key("loop");
      key.Add(int64_t{trips.number}).Add(int64_t{condition.number});
      for (size_t k = 0; k < carried.size(); ++k) {
        if (own || !carried[k].own)
          key.Add(static_cast<int64_t>(k)).Add(int64_t{carried[k].before.number}).Add(int64_t{carried[k].after.number});
      }
      const Value all = numbers_.Of(key);
      for (size_t k = 0; k < carried.size(); ++k) {
        if (carried[k].own != own) continue;
        const int number = numbers_.Of(ValueKey("result").Add(all).Add(static_cast<int64_t>(k))).number;
        Write(values, carried[k].buffer, {number, own});
      }
    }
  }

  // A broadcast in place may follow the write of a state.
  static void FindLastWrites(Flow& flow) {
    const Program& program = flow.values.of;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      for (const Use& use : program.instructions[i].uses) {
        if (use.access != Access::kWrite || use.buffer < 0) continue;
        const Buffer& written = At(program, use);
        if (written.arena == Arena::kState && written.bytes > 0)
          flow.last_write[flow.tables->state.at(written.offset)] = static_cast<int>(i);
      }
    }
  }

  // A state's next value must be the same on all that hold the state, unless each has a part.
  void CheckStates(Flow& flow, int index) {
    const Instruction& instruction = flow.values.of.instructions[static_cast<size_t>(index)];
    for (const Use& use : instruction.uses) {
      if (use.access != Access::kWrite || use.buffer < 0) continue;
      const Buffer& written = At(flow.values.of, use);
      if (written.arena != Arena::kState || written.bytes == 0) continue;
      const int state = flow.tables->state.at(written.offset);
      if (plan_.state[static_cast<size_t>(state)].partial || flow.last_write.at(state) != index) continue;
      const Value value = Read(flow, flow.values, use.buffer);
      const Next& first = next_.try_emplace(state, Next{value, flow.rank, index}).first->second;
      std::string cause;
      if (value.own && !flow.alone) {
        cause = OwnOperand(flow, instruction);
      } else if (value.number != first.value.number) {
        cause = ": " + Rank(first.rank) + ", " + Describe(program(first.rank), first.instruction) + " gives it another one";
      } else {
        continue;
      }
      return faults_.Add("ranks", Rank(flow.rank) + ", " + Describe(flow.values.of, index),
                         "gives state '" + Escaped(plan_.state[static_cast<size_t>(state)].name) +
                             "' a value that is not the same on all ranks that hold it" + cause);
    }
  }

  std::string OwnOperand(const Flow& flow, const Instruction& instruction) {
    for (const Use& use : instruction.uses) {
      if (use.access != Access::kRead || use.buffer < 0 || !Read(flow, flow.values, use.buffer).own) continue;
      return ": it depends on " + Describe(At(flow.values.of, use)) + ", which is no sum over all of them";
    }
    return "";
  }

  // Of a fetch that is not divided, the value of the first rank that provides it is taken to be that of all.
  void CheckFetched(size_t f) {
    if (entry_.fetches[f].batch_axis >= 0) return;
    std::map<std::pair<int, int>, std::pair<size_t, int>> providers;  // by program and buffer: the first rank, and how many there are
    for (size_t r = 0; r < entry_.ranks.size(); ++r) {
      const int buffer = FetchedBuffer(entry_, r, f);
      if (buffer >= 0) ++providers.try_emplace({entry_.ranks[r].program, buffer}, r, 0).first->second.second;
    }
    int number = -1;
    for (const auto& [key, provider] : providers) {
      const auto [rank, count] = provider;
      const Flow& flow = FlowOf(rank);
      const Value value = Read(flow, flow.values, key.second);
      // One of several ranks that run the program may provide it, beside ranks that run others.
      const bool own = value.own && !flow.alone && (count > 1 || providers.size() > 1);
      const bool differs = own || (number >= 0 && number != value.number);
      number = value.number;
      if (!differs) continue;
      return faults_.Add(
          "ranks", Rank(rank) + ", fetch '" + Escaped(entry_.fetches[f].name) + "'",
          Describe(flow.values.of.buffers[static_cast<size_t>(key.second)]) + " is not the same on all ranks that provide it");
    }
  }

  // A sum whose result is only summed again counts everything several times.
  void CheckSummedOnce(const Flow& flow) {
    const Program& program = flow.values.of;
    std::map<int, int> sums;  // what a sum writes, by family: the sum
    std::set<int> used;       // families that anything else reads
    for (int i : facts(flow.rank).communication) {
      const Instruction& instruction = program.instructions[static_cast<size_t>(i)];
      if (!Sums(instruction)) continue;
      for (const Use& use : instruction.uses) {
        if (use.access == Access::kWrite && use.buffer >= 0 && At(program, use).bytes > 0) sums.emplace(FamilyOf(program, use.buffer), i);
      }
    }
    if (sums.empty()) return;
    for (const Instruction& instruction : program.instructions) {
      for (const Use& use : instruction.uses) {
        if (use.access == Access::kRead && use.buffer >= 0 && !Sums(instruction)) used.insert(FamilyOf(program, use.buffer));
      }
    }
    for (size_t f = 0; f < entry_.fetches.size(); ++f) {
      const int buffer = FetchedBuffer(entry_, flow.rank, f);
      if (buffer >= 0) used.insert(FamilyOf(program, buffer));
    }
    for (int i : facts(flow.rank).communication) {
      const Instruction& again = program.instructions[static_cast<size_t>(i)];
      if (!Sums(again)) continue;
      for (const Use& use : again.uses) {
        if (use.access != Access::kRead) continue;
        const int family = FamilyOf(program, use.buffer);
        const auto first = sums.find(family);
        if (first == sums.end() || used.contains(family)) continue;
        const Instruction& sum = program.instructions[static_cast<size_t>(first->second)];
        const std::vector<int>& a = plan_.groups[static_cast<size_t>(GroupOf(flow.rank, sum))].ranks;
        const std::vector<int>& b = plan_.groups[static_cast<size_t>(GroupOf(flow.rank, again))].ranks;
        std::vector<int> both;
        std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
        if (both.size() < 2) continue;
        return faults_.Add("ranks", Rank(flow.rank) + ", " + Describe(program, i),
                           "sums " + Describe(At(program, use)) + ", which " + Describe(program, first->second) +
                               " has already summed over the same ranks");
      }
    }
  }

  ValueNumbers numbers_;
  bool divided_ = false;          // whether ranks have different samples
  std::map<int, Tables> tables_;  // by place; flows refer to them
  std::vector<Flow> flows_;
  std::map<int, size_t> flow_of_;                                             // by program
  std::map<int, Next> next_;                                                  // by state
  std::map<int, int> first_equal_;                                            // by constant: the first with the same elements
  std::map<std::pair<DType, int64_t>, std::vector<int>> distinct_constants_;  // by type and bytes
};

}  // namespace

void CheckSharing(const EntryRanks& ranks, const std::vector<Transfer>& transfers) { SharingCheck(ranks, transfers).Run(); }

}  // namespace gradloom::verify
