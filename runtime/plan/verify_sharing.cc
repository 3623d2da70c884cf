// Checks "ranks": that the ranks that hold a state give it the same next value, whatever their samples are.
//
// Every value of a program gets the set of places that share it: all ranks of these places have the same value, or can compute it from what
// they share. It follows from the flow of data alone, and not from names or phases.
// * Constants, step parameters and undivided feeds are shared by all places, and a state by those that hold it, by induction over the
//   steps. What depends on a rank's own samples (divided feeds, the number of its first sample, partial states) is shared by none, except
//   that a place of one rank shares all that this rank has.
// * The result of a collective is shared by the places of which the group has all ranks. Only a sum makes one value of many that differ.
// * A value that is sent is also had by those that receive it. If the sender's place shares it, the receiver's does; if one rank sends it
//   to all other ranks of a place, that place shares it.
// * Any other result is shared by the places that share all operands on which it depends. A branch depends on its condition, a loop on its
//   number of iterations.
// A state's next value must be shared by all places that hold the state. So a gradient must be summed over all of their ranks, and if one
// device computes it from the samples of all, it must send it to the others.
//
// A value that all ranks share may still be one addend of each of them, such as the gradient of a bias that each sample changes alike. So
// sums of shared values are accepted, except for a sum whose result is only summed again.
//
// Every program is walked once for an entry, however many ranks run it: it may rely on what all of them share.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "kernels/catalog/data_flow.h"
#include "runtime/base/error.h"
#include "runtime/plan/verify_scope.h"

namespace gradloom::verify {
namespace {

constexpr size_t kMaxPlaceNumbers = size_t{1} << 24;  // in all sets together
constexpr int kUnknown = -1;
// The walks through the body of a loop until what it carries is shared by as few places as after any number of iterations. If they do not
// suffice, or loops are nested deeper, all that is carried is taken to depend on all of it.
constexpr int kMaxWalks = 4;
constexpr int kMaxWalkedDepth = 3;

// Sets of places by number, so that equal sets have equal numbers.
class PlaceSets {
 public:
  explicit PlaceSets(size_t places) {
    std::vector<int> all(places);
    for (size_t i = 0; i < places; ++i) all[i] = static_cast<int>(i);
    all_ = Of(std::move(all));
  }

  int all() const { return all_; }
  // Whether there are more sets than can be checked. They stay valid.
  bool full() const { return numbers_ > kMaxPlaceNumbers; }

  // `places`: ascending.
  int Of(std::vector<int> places) {
    const auto [found, fresh] = ids_.emplace(std::move(places), static_cast<int>(sets_.size()));
    if (fresh) {
      sets_.push_back(&found->first);
      numbers_ += found->first.size();
    }
    return found->second;
  }

  int Meet(int a, int b) {
    if (a == b || b == all_) return a;
    if (a == all_) return b;
    return Combined(a, b, meets_, [](const std::vector<int>& x, const std::vector<int>& y, std::vector<int>& made) {
      std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(made));
    });
  }
  int Join(int a, int b) {
    if (a == b || a == all_) return a;
    if (b == all_) return b;
    return Combined(a, b, joins_, [](const std::vector<int>& x, const std::vector<int>& y, std::vector<int>& made) {
      std::set_union(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(made));
    });
  }
  bool Includes(int a, int b) { return Meet(a, b) == b; }
  bool Contains(int set, int place) const {
    const std::vector<int>& places = *sets_[static_cast<size_t>(set)];
    return std::binary_search(places.begin(), places.end(), place);
  }

 private:
  using Known = std::unordered_map<uint64_t, int>;

  template <typename F>
  int Combined(int a, int b, Known& known, F&& combine) {
    const uint64_t key = static_cast<uint64_t>(std::min(a, b)) << 32 | static_cast<uint64_t>(std::max(a, b));
    const auto found = known.find(key);
    if (found != known.end()) return found->second;
    std::vector<int> made;
    combine(*sets_[static_cast<size_t>(a)], *sets_[static_cast<size_t>(b)], made);
    const int id = Of(std::move(made));
    known.emplace(key, id);
    return id;
  }

  std::map<std::vector<int>, int> ids_;
  std::vector<const std::vector<int>*> sets_;  // by number
  Known meets_, joins_;
  size_t numbers_ = 0;
  int all_ = 0;
};

// The bytes of a buffer, by which a body and the program around it have the same value.
using Bytes = std::tuple<Arena, int, int64_t, int64_t>;
Bytes BytesIn(const Buffer& buffer) { return {buffer.arena, buffer.feed, buffer.offset, buffer.bytes}; }

bool Sums(const Instruction& instruction) {
  return instruction.kind == InstructionKind::kCollective &&
         (instruction.collective == Collective::kAllReduceSum || instruction.collective == Collective::kReduceScatterSum);
}

// Whether the instruction writes the elements that it reads first, and the value is had where its result is.
bool Moves(const Instruction& instruction) {
  if (instruction.kind == InstructionKind::kCopy) return true;
  if (instruction.kind != InstructionKind::kLaunch) return false;
  if (instruction.domain == "gradloom") return instruction.op == "Reorder";
  static const std::set<std::string, std::less<>> kMoves = {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"};
  return instruction.domain.empty() && kMoves.contains(instruction.op);
}

int FamilyOf(const Program& program, int buffer) {
  const int whole = program.buffers[static_cast<size_t>(buffer)].whole;
  return whole < 0 ? buffer : whole;
}

class SharingCheck : EntryRanks {
 public:
  SharingCheck(const EntryRanks& ranks, const std::vector<Transfer>& transfers) : EntryRanks(ranks), sets_(plan_.places.size()) {
    place_size_.resize(plan_.places.size());
    holders_.assign(plan_.state.size(), kUnknown);
    for (size_t r = 0; r < entry_.ranks.size(); ++r) ++place_size_[static_cast<size_t>(program(r).place)];
    std::vector<int> empty;
    for (size_t place = 0; place < place_size_.size(); ++place) {
      if (place_size_[place] == 0) empty.push_back(static_cast<int>(place));
    }
    empty_places_ = sets_.Of(std::move(empty));
    const auto same_shard = [&](const RankBinding& rank) {
      return rank.shard_start == entry_.ranks[0].shard_start && rank.shard_length == entry_.ranks[0].shard_length;
    };
    divided_ = !std::all_of(entry_.ranks.begin(), entry_.ranks.end(), same_shard);
    AddFlows();
    AddTransfers(transfers);
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
      const size_t f = ready.back();
      ready.pop_back();
      Advance(f);
      for (size_t waiting : std::exchange(flows_[f].waiting, {})) ready.push_back(waiting);
      if (sets_.full()) return faults_.Add("ranks", name_, "has more places than can be checked");
    }
    for (size_t f = 0; f < flows_.size() && !faults_.full(); ++f) CheckSummedOnce(flows_[f]);
  }

 private:
  // The sets of the values of a program or a body.
  struct Values {
    const Program& of;
    std::vector<int> exact, family;  // by buffer that has been written, and by whole of which any part has been; else kUnknown
    std::map<int, int> given;        // buffers that a body gets from around it

    explicit Values(const Program& program)
        : of(program), exact(program.buffers.size(), kUnknown), family(program.buffers.size(), kUnknown) {}
  };

  // Which places get a value that a program sends.
  struct Sent {
    int receiving = kUnknown;  // those that receive it from the sender's place
    int covered = kUnknown;    // those of which the sender and the receivers are all ranks
  };

  // A program of the entry.
  struct Flow {
    size_t rank;  // the first that runs it
    int place;
    int own;               // the places that share what one rank has alone
    const Tables* tables;  // of the place
    Values values;
    std::vector<int> roots;                              // by buffer: the one whose elements it has
    std::map<int, int> collectives;                      // by instruction: the places of which all bound groups have all ranks
    std::map<int, std::set<std::pair<size_t, int>>> of;  // by instruction that receives: the flows and instructions that send
    std::map<int, Sent> sent;                            // by root
    std::vector<size_t> waiting{};                       // flows that wait for this one
    size_t next = 0;                                     // the first instruction that has not been walked
    size_t forced = static_cast<size_t>(-1);             // an instruction that receives, and that does not wait for what is sent

    bool finished() const { return next == values.of.instructions.size(); }
  };

  void AddFlows() {
    std::vector<int> group_places(plan_.groups.size(), kUnknown);
    for (size_t r = 0; r < entry_.ranks.size(); ++r) {
      const auto [found, fresh] = flow_of_.emplace(entry_.ranks[r].program, flows_.size());
      if (fresh) {
        const int place = program(r).place;
        const Tables& tables = tables_.try_emplace(place, plan_, place).first->second;
        flows_.push_back({r, place, CoveredBy({static_cast<int>(r)}), &tables, Values(program(r)), Roots(program(r)), {}, {}, {}});
      }
      Flow& flow = flows_[found->second];
      for (int i : facts(r).communication) {
        const Instruction& instruction = program(r).instructions[static_cast<size_t>(i)];
        if (instruction.kind != InstructionKind::kCollective) continue;
        const int group = GroupOf(r, instruction);
        int& places = group_places[static_cast<size_t>(group)];
        if (places == kUnknown) places = CoveredBy(plan_.groups[static_cast<size_t>(group)].ranks);
        const auto [known, first] = flow.collectives.emplace(i, places);
        if (!first) known->second = sets_.Meet(known->second, places);
      }
    }
  }

  int GroupOf(size_t rank, const Instruction& collective) const { return entry_.ranks[rank].groups[static_cast<size_t>(collective.group)]; }

  void AddTransfers(const std::vector<Transfer>& transfers) {
    std::map<std::pair<size_t, int>, std::vector<int>> receivers;  // by sender and root
    for (const Transfer& transfer : transfers) {
      const size_t from = flow_of_.at(entry_.ranks[transfer.sender].program), to = flow_of_.at(entry_.ranks[transfer.receiver].program);
      flows_[to].of[transfer.recv].emplace(from, transfer.send);
      const int buffer = program(transfer.sender).instructions[static_cast<size_t>(transfer.send)].uses[0].buffer;
      receivers[{transfer.sender, flows_[from].roots[static_cast<size_t>(buffer)]}].push_back(static_cast<int>(transfer.receiver));
    }
    for (auto& [key, ranks] : receivers) {
      const auto& [sender, root] = key;
      std::sort(ranks.begin(), ranks.end());
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
      // If each rank of the sender's place sends to that many, all ranks of the receivers' place get it.
      std::map<int, int> members;
      for (int rank : ranks) ++members[program(static_cast<size_t>(rank)).place];
      const int64_t senders = place_size_[static_cast<size_t>(program(sender).place)];
      std::vector<int> places;
      for (const auto& [place, count] : members) {
        if (count * senders >= place_size_[static_cast<size_t>(place)]) places.push_back(place);
      }
      ranks.insert(std::lower_bound(ranks.begin(), ranks.end(), static_cast<int>(sender)), static_cast<int>(sender));
      const int receiving = sets_.Of(std::move(places)), covered = CoveredBy(ranks);
      const auto [known, first] = flows_[flow_of_.at(entry_.ranks[sender].program)].sent.emplace(root, Sent{receiving, covered});
      if (first) continue;
      known->second.receiving = sets_.Meet(known->second.receiving, receiving);
      known->second.covered = sets_.Meet(known->second.covered, covered);
    }
  }

  // The places of which these ranks, without repetitions, are all ranks.
  int CoveredBy(const std::vector<int>& ranks) {
    std::map<int, int> members;
    for (int rank : ranks) ++members[program(static_cast<size_t>(rank)).place];
    std::vector<int> places;
    for (const auto& [place, count] : members) {
      if (count == place_size_[static_cast<size_t>(place)]) places.push_back(place);
    }
    return sets_.Of(std::move(places));
  }

  // By buffer: the one that it is a view or a copy of.
  static std::vector<int> Roots(const Program& program) {
    std::vector<int> roots(program.buffers.size());
    for (size_t b = 0; b < roots.size(); ++b) {
      const int family = FamilyOf(program, static_cast<int>(b));
      roots[b] = program.buffers[static_cast<size_t>(family)].bytes == program.buffers[b].bytes ? family : static_cast<int>(b);
    }
    for (const Instruction& instruction : program.instructions) {
      if (!Moves(instruction) || instruction.uses.empty() || instruction.uses[0].access != Access::kRead) continue;
      if (instruction.uses[0].buffer < 0) continue;
      for (const Use& use : instruction.uses) {
        if (use.access != Access::kWrite || use.buffer < 0) continue;
        const int root = roots[static_cast<size_t>(instruction.uses[0].buffer)], family = FamilyOf(program, use.buffer);
        roots[static_cast<size_t>(use.buffer)] = root;
        if (program.buffers[static_cast<size_t>(family)].bytes == program.buffers[static_cast<size_t>(use.buffer)].bytes)
          roots[static_cast<size_t>(family)] = root;
      }
    }
    return roots;
  }

  // Walks the program up to the next instruction that receives what has not been walked yet.
  void Advance(size_t f) {
    Flow& flow = flows_[f];
    for (; !flow.finished() && !sets_.full(); ++flow.next) {
      const Instruction& instruction = flow.values.of.instructions[flow.next];
      const int index = static_cast<int>(flow.next);
      if (instruction.kind == InstructionKind::kRecv) {
        if (flow.forced != flow.next) {
          for (const auto& [from, send] : flow.of[index]) {
            if (flows_[from].next > static_cast<size_t>(send)) continue;
            flows_[from].waiting.push_back(f);
            return;
          }
        }
        Write(flow, flow.values, instruction.uses[0].buffer, flow.forced == flow.next ? flow.own : Received(flow, index));
      } else if (instruction.kind == InstructionKind::kCollective) {
        const bool scatters = instruction.collective == Collective::kReduceScatterSum;
        const int set = scatters ? flow.own : sets_.Join(flow.collectives.at(index), flow.own);
        for (const Use& use : instruction.uses) {
          if (use.access == Access::kWrite) Write(flow, flow.values, use.buffer, set);
        }
      } else {
        Walk(flow, flow.values, instruction, 0);
      }
      CheckStates(flow, index);
    }
  }

  // A value that the sender's place shares, or that this place gets from one rank, is shared by this place as well.
  int Received(Flow& flow, int index) {
    int set = sets_.all();
    for (const auto& [from, send] : flow.of[index]) {
      Flow& sender = flows_[from];
      const int sent = Read(sender, sender.values, sender.values.of.instructions[static_cast<size_t>(send)].uses[0].buffer);
      set = sets_.Meet(set, sets_.Contains(sent, flow.place) ? sent : flow.own);
    }
    return sets_.Join(set, flow.own);
  }

  // The places that share a value, including those that it, or the whole that it is a part of, is sent to.
  int WithReceivers(Flow& flow, int buffer, int set) {
    for (int sent : {buffer, FamilyOf(flow.values.of, buffer)}) {
      const auto found = flow.sent.find(flow.roots[static_cast<size_t>(sent)]);
      if (found == flow.sent.end()) continue;
      if (sets_.Contains(set, flow.place)) set = sets_.Join(set, found->second.receiving);
      set = sets_.Join(set, found->second.covered);
    }
    return set;
  }

  void Write(Flow& flow, Values& values, int buffer, int set) {
    if (&values == &flow.values) set = WithReceivers(flow, buffer, set);
    int &exact = values.exact[static_cast<size_t>(buffer)], &family = values.family[static_cast<size_t>(FamilyOf(values.of, buffer))];
    exact = set;
    family = family == kUnknown ? set : sets_.Meet(family, set);
  }

  int Read(Flow& flow, const Values& values, int buffer) {
    const int exact = values.exact[static_cast<size_t>(buffer)], family = FamilyOf(values.of, buffer);
    if (exact != kUnknown) return exact;
    int set = values.family[static_cast<size_t>(family)];
    if (set == kUnknown) {
      const auto from_around = values.given.find(family);
      set = from_around != values.given.end() ? from_around->second : Given(flow, values.of.buffers[static_cast<size_t>(family)]);
    }
    // A view may be sent, which nothing writes.
    return &values == &flow.values ? WithReceivers(flow, buffer, set) : set;
  }

  // The places that share a value from before the step.
  int Given(Flow& flow, const Buffer& buffer) {
    switch (buffer.arena) {
      case Arena::kConstants: return sets_.all();
      case Arena::kStep: return divided_ && buffer.offset == plan_.step.first ? flow.own : sets_.all();
      case Arena::kFeed: return divided_ && entry_.feeds[static_cast<size_t>(buffer.feed)].batch_axis >= 0 ? flow.own : sets_.all();
      case Arena::kState: {
        const StateTensor* const state = StateAt(flow, buffer);
        if (state == nullptr) return sets_.all();
        return state->partial ? flow.own : sets_.Join(Holders(*state), flow.own);
      }
      case Arena::kInput:
      case Arena::kTransient: break;
    }
    return buffer.bytes == 0 ? sets_.all() : flow.own;
  }

  // Null if it has no bytes.
  const StateTensor* StateAt(const Flow& flow, const Buffer& buffer) const {
    const auto found = flow.tables->state.find(buffer.offset);
    return buffer.bytes == 0 || found == flow.tables->state.end() ? nullptr : &plan_.state[static_cast<size_t>(found->second)];
  }

  int Holders(const StateTensor& state) {
    int& known = holders_[static_cast<size_t>(&state - plan_.state.data())];
    if (known == kUnknown) known = state.places.empty() ? sets_.all() : sets_.Of(state.places);
    return known;
  }

  // Notes the results of a launch, a copy, a branch or a loop.
  void Walk(Flow& flow, Values& values, const Instruction& instruction, int depth) {
    if (instruction.kind == InstructionKind::kIf) return WalkIf(flow, values, instruction, depth);
    if (instruction.kind == InstructionKind::kLoop) return WalkLoop(flow, values, instruction, depth);
    std::vector<int> inputs, outputs;  // sets of the inputs, buffers of the outputs
    int all = sets_.all();
    for (const Use& use : instruction.uses) {
      if (use.access == Access::kWrite) outputs.push_back(use.buffer);
      if (use.access != Access::kRead) continue;
      inputs.push_back(use.buffer < 0 ? sets_.all() : Read(flow, values, use.buffer));
      all = sets_.Meet(all, inputs.back());
    }
    const std::vector<OutputFlow> made = FlowsOfLaunch(values.of, instruction, outputs);
    for (const OutputFlow& output : made) {
      int set = sets_.all();
      for (int i : output.inputs) set = sets_.Meet(set, inputs[static_cast<size_t>(i)]);
      for (int k : output.outputs) set = sets_.Meet(set, Read(flow, values, outputs[static_cast<size_t>(k)]));
      Write(flow, values, outputs[static_cast<size_t>(output.output)], set);
    }
    for (size_t k = 0; made.empty() && k < outputs.size(); ++k) {
      if (outputs[k] >= 0) Write(flow, values, outputs[k], all);
    }
  }

  // Empty if each output is taken to depend on every input. That holds for launches that their kernel does not check before it runs, if
  // outputs are absent or the attributes are no program.
  std::vector<OutputFlow> FlowsOfLaunch(const Program& program, const Instruction& instruction, const std::vector<int>& outputs) const {
    if (instruction.kind != InstructionKind::kLaunch || instruction.domain != "gradloom" || outputs.size() < 2) return {};
    if (std::find(outputs.begin(), outputs.end(), -1) != outputs.end()) return {};
    try {
      return FlowsOf(CallOf(plan_, program, instruction));
    } catch (const Error&) {
      return {};
    }
  }

  // What a body is given and returns, by its bytes.
  using Shared = std::map<Bytes, int>;

  const Buffer& At(const Program& program, const Use& use) const { return program.buffers[static_cast<size_t>(use.buffer)]; }

  Shared ReadBy(Flow& flow, const Values& values, const Instruction& instruction) {
    Shared read;
    for (const Use& use : instruction.uses) {
      if (use.access != Access::kRead || use.buffer < 0) continue;
      const int set = Read(flow, values, use.buffer);
      const auto [known, first] = read.emplace(BytesIn(At(values.of, use)), set);
      if (!first) known->second = sets_.Meet(known->second, set);
    }
    return read;
  }

  // Returns what the body's writes share at its end; of several at the same place the last one counts.
  Shared WalkBody(Flow& flow, const Program& body, const Shared& given, int depth) {
    Values values(body);
    for (size_t b = 0; b < body.buffers.size(); ++b) {
      const auto found = given.find(BytesIn(body.buffers[b]));
      if (found != given.end() && body.buffers[b].whole < 0) values.given.emplace(static_cast<int>(b), found->second);
    }
    Shared made;
    for (const Instruction& instruction : body.instructions) {
      Walk(flow, values, instruction, depth + 1);
      for (const Use& use : instruction.uses) {
        if (use.access == Access::kWrite && use.buffer >= 0) made[BytesIn(At(body, use))] = values.exact[static_cast<size_t>(use.buffer)];
      }
    }
    return made;
  }

  static int ValueOf(const Shared& shared, const Bytes& bytes, int otherwise) {
    const auto found = shared.find(bytes);
    return found == shared.end() ? otherwise : found->second;
  }

  int OperandOf(Flow& flow, const Values& values, const Instruction& instruction, size_t use) {
    const bool present = use < instruction.uses.size() && instruction.uses[use].buffer >= 0;
    return present ? Read(flow, values, instruction.uses[use].buffer) : sets_.all();
  }

  void WalkIf(Flow& flow, Values& values, const Instruction& branch, int depth) {
    const Shared given = ReadBy(flow, values, branch);
    const int condition = OperandOf(flow, values, branch, 0);
    std::vector<Shared> made;
    for (const Program& body : branch.bodies) made.push_back(WalkBody(flow, body, given, depth));
    for (const Use& use : branch.uses) {
      if (use.access != Access::kWrite || use.buffer < 0) continue;
      int set = condition;
      for (const Shared& of_body : made) set = sets_.Meet(set, ValueOf(of_body, BytesIn(At(values.of, use)), flow.own));
      Write(flow, values, use.buffer, set);
    }
  }

  // Each result of a loop is written where its value before the first iteration was, and read from there by the next iteration.
  void WalkLoop(Flow& flow, Values& values, const Instruction& loop, int depth) {
    Shared carried = ReadBy(flow, values, loop);
    const int trips = OperandOf(flow, values, loop, 0);
    const Use& condition = loop.uses[1];
    const int walks = depth < kMaxWalkedDepth ? kMaxWalks : 1;
    bool changed = true;
    for (int walk = 0; walk < walks && changed; ++walk) {
      changed = false;
      const Shared made = WalkBody(flow, loop.bodies[0], carried, depth);
      int goes_on = trips;
      if (condition.buffer >= 0) goes_on = sets_.Meet(goes_on, ValueOf(carried, BytesIn(At(values.of, condition)), flow.own));
      for (const Use& use : loop.uses) {
        if (use.access != Access::kWrite) continue;
        const Bytes bytes = BytesIn(At(values.of, use));
        int& set = carried[bytes];
        const int next = sets_.Meet(sets_.Meet(set, goes_on), ValueOf(made, bytes, flow.own));
        changed |= next != set;
        set = next;
      }
    }
    int all = sets_.all();
    for (const Use& use : loop.uses) {
      if (use.access == Access::kWrite) all = sets_.Meet(all, ValueOf(carried, BytesIn(At(values.of, use)), flow.own));
    }
    for (const Use& use : loop.uses) {
      if (use.access == Access::kWrite) Write(flow, values, use.buffer, changed ? all : carried.at(BytesIn(At(values.of, use))));
    }
  }

  // A state's next value must be shared by all that hold the state, unless each has a part.
  void CheckStates(Flow& flow, int index) {
    const Instruction& instruction = flow.values.of.instructions[static_cast<size_t>(index)];
    for (const Use& use : instruction.uses) {
      if (use.access != Access::kWrite || use.buffer < 0) continue;
      const Buffer& written = At(flow.values.of, use);
      const StateTensor* const state = written.arena == Arena::kState ? StateAt(flow, written) : nullptr;
      if (state == nullptr || state->partial) continue;
      const int holders = Holders(*state);
      const auto differs = [&](int set) { return !sets_.Includes(sets_.Join(set, empty_places_), holders); };
      if (!differs(flow.values.exact[static_cast<size_t>(use.buffer)])) continue;
      std::string cause;
      for (const Use& read : instruction.uses) {
        if (!cause.empty() || read.access != Access::kRead || read.buffer < 0) continue;
        if (differs(Read(flow, flow.values, read.buffer))) cause = Describe(At(flow.values.of, read));
      }
      return faults_.Add("ranks", Rank(flow.rank) + ", " + Describe(flow.values.of, index),
                         "gives state '" + Escaped(state->name) + "' a value that is not the same on all ranks that hold it" +
                             (cause.empty() ? "" : ": it depends on " + cause + ", which is no sum over all of them"));
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
        if (use.access == Access::kWrite && At(program, use).bytes > 0) sums.emplace(FamilyOf(program, use.buffer), i);
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

  PlaceSets sets_;
  std::vector<int> place_size_;   // by place: its number of ranks
  int empty_places_ = 0;          // the places without ranks
  std::vector<int> holders_;      // by state: the places that hold it, if they have been asked for
  bool divided_ = false;          // whether ranks have different samples
  std::map<int, Tables> tables_;  // by place; flows refer to them
  std::vector<Flow> flows_;
  std::map<int, size_t> flow_of_;  // by program
};

}  // namespace

void CheckSharing(const EntryRanks& ranks, const std::vector<Transfer>& transfers) { SharingCheck(ranks, transfers).Run(); }

}  // namespace gradloom::verify
