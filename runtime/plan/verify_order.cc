// Checks "order" and "values": what each instruction finds in memory, at any speed of the streams.
//
// Order. The host issues instructions in the order of the list. A stream runs its own instructions in that order. A wait lets its stream
// continue once the event's record has been passed. "a before b" is the transitive closure of these relations. All of them lead forward in
// the list (a wait without an earlier record is refused), so the list is one possible order, and no instruction can wait for itself.
// Before() uses vector clocks: the clock of an instruction holds, for each stream, how many of its instructions come before it.
//
// Values. The sweep walks the list and keeps, for each byte of the arenas that a step writes, the last write and the reads since then.
// Segments with equal history are joined, so the cost of an instruction is proportional to the segments of its operands.
// * A write must come after the last write and after all reads since then, and a read must come after the last write. By induction over the
//   list, every two conflicting accesses are then ordered as in the list: an earlier access that has left the history came before the write
//   that replaced it.
// * So in every order that streams and events permit, a byte sees the same writes and reads in the same order as in the list, and a read
//   finds what it finds in this sweep. That must be the write of the buffer (or of a part of the same whole), or for a given buffer the
//   value from before the step.
//
// Refusals. A kernel that finds a label outside the classes makes the step fail. If the plan says that a failed step changes nothing, data
// that lives between steps is written after every instruction that may refuse.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

#include "runtime/plan/verify_scope.h"

namespace gradloom::verify {
namespace {

constexpr size_t kMaxClockEntries = size_t{1} << 26;
constexpr int64_t kMaxSegmentSteps = int64_t{1} << 27;

// Vector clocks. A stream's clock changes only at its waits; everything else is a position within a stream.
class Clocks {
 public:
  Clocks(const Scope& scope, FaultList& faults) : program_(scope.program), streams_(program_.streams.size()) {
    std::vector<int> recorded(static_cast<size_t>(program_.num_events), -1);
    std::vector<int> length(streams_, 0);
    std::vector<size_t> version(streams_, 0);
    versions_.assign(streams_, 0);
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      const size_t stream = static_cast<size_t>(instruction.stream);
      if (instruction.kind == InstructionKind::kRecord) {
        int& record = recorded[static_cast<size_t>(instruction.event)];
        if (record >= 0)
          faults.Add("order", Where(scope, static_cast<int>(i)), "the event was already recorded by " + Describe(program_, record));
        record = static_cast<int>(i);
      } else if (instruction.kind == InstructionKind::kWait) {
        const int record = recorded[static_cast<size_t>(instruction.event)];
        if (record < 0) {
          NoRecord(scope, static_cast<int>(i), faults);
        } else if (versions_.size() > kMaxClockEntries) {
          full_ = true;
        } else {
          version[stream] = Join(version[stream], record);
        }
      }
      position_.push_back(++length[stream]);
      version_.push_back(version[stream]);
    }
    if (full_) faults.Add("order", scope.name, "has more waits and streams than can be checked");
  }

  bool usable() const { return !full_; }

  // Whether a is b, or has ended when b begins.
  bool Before(int a, int b) const {
    const int stream = program_.instructions[static_cast<size_t>(a)].stream;
    return position_[static_cast<size_t>(a)] <= NumEnded(b, static_cast<size_t>(stream));
  }

  // A description of an order that streams and events permit and in which b comes before a.
  std::string OrderWithout(int a, int b) const {
    std::vector<int> last(streams_, -1);
    for (int i = 0; i <= b; ++i) {
      if (Before(i, b)) last[static_cast<size_t>(program_.instructions[static_cast<size_t>(i)].stream)] = i;
    }
    std::string text;
    for (size_t s = 0; s < streams_; ++s) {
      if (last[s] >= 0) text += (text.empty() ? "stream " : ", stream ") + std::to_string(s) + " up to #" + std::to_string(last[s]);
    }
    return text + ", and only then #" + std::to_string(a);
  }

 private:
  int NumEnded(int b, size_t stream) const {
    const size_t i = static_cast<size_t>(b);
    if (static_cast<size_t>(program_.instructions[i].stream) == stream) return position_[i];
    return versions_[version_[i] + stream];
  }

  // Joins the clock of `version` with that of the recording instruction, and returns the new version.
  size_t Join(size_t version, int record) {
    const size_t made = versions_.size();
    versions_.resize(made + streams_);
    for (size_t s = 0; s < streams_; ++s) versions_[made + s] = std::max(versions_[version + s], NumEnded(record, s));
    return made;
  }

  void NoRecord(const Scope& scope, int wait, FaultList& faults) const {
    std::string later = "nothing records the event";
    for (size_t i = static_cast<size_t>(wait); i < program_.instructions.size(); ++i) {
      const Instruction& other = program_.instructions[i];
      if (other.kind != InstructionKind::kRecord || other.event != program_.instructions[static_cast<size_t>(wait)].event) continue;
      later = "the event is recorded only later, by " + Describe(program_, static_cast<int>(i)) +
              ": the wait does not wait for it, or the two streams deadlock";
    }
    faults.Add("order", Where(scope, wait), later);
  }

  const Program& program_;
  const size_t streams_;
  std::vector<int> position_;    // by instruction: its position within its stream, from 1
  std::vector<size_t> version_;  // by instruction: the start of its clock in versions_
  std::vector<int> versions_;    // clocks of streams_ numbers each; the first one is zero
  bool full_ = false;
};

// The last writer of a segment.
constexpr int kNoWriter = -2;
constexpr int kBeforeProgram = -1;

struct Segment {
  int64_t end = 0;
  int writer = kNoWriter;
  int buffer = -1;           // the buffer that it wrote
  std::vector<int> readers;  // readers since then: the last of each stream
};

// The access history of one arena. Its segments cover the arena from 0 to its end.
class History {
 public:
  History(int64_t bytes, int writer) {
    if (bytes > 0) segments_[0] = {bytes, writer, -1, {}};
  }

  using Iterator = std::map<int64_t, Segment>::iterator;

  // The segments of a range; segments are split at its ends.
  std::pair<Iterator, Iterator> Range(int64_t begin, int64_t end) {
    if (begin == end) return {segments_.end(), segments_.end()};
    const Iterator first = Cut(begin);
    return {first, Cut(end)};
  }

  void Write(int64_t begin, int64_t end, int writer, int buffer) {
    if (begin == end) return;
    const auto [first, last] = Range(begin, end);
    segments_.erase(first, last);
    segments_[begin] = {end, writer, buffer, {}};
  }

 private:
  Iterator Cut(int64_t at) {
    const Iterator found = segments_.lower_bound(at);
    if (found != segments_.end() && found->first == at) return found;
    if (found == segments_.begin()) return found;
    const Iterator before = std::prev(found);
    if (before->second.end <= at) return found;
    Segment rest = before->second;
    before->second.end = at;
    return segments_.emplace_hint(found, at, std::move(rest));
  }

  std::map<int64_t, Segment> segments_;
};

class Sweep {
 public:
  Sweep(const Scope& scope, const Clocks& clocks, FaultList& faults)
      : scope_(scope),
        program_(scope.program),
        clocks_(clocks),
        faults_(faults),
        state_(scope.plan.places[static_cast<size_t>(scope.place)].state_bytes, scope.outer == nullptr ? kBeforeProgram : kNoWriter),
        transient_(scope.transient_bytes, kNoWriter),
        input_(scope.input_bytes, kNoWriter),
        family_writer_(program_.buffers.size(), -1) {
    const std::vector<int> writers = Writers(program_);
    for (size_t b = 0; b < writers.size(); ++b) {
      if (writers[b] >= 0) family_writer_[static_cast<size_t>(Family(static_cast<int>(b)))] = writers[b];
    }
    // A body begins with the buffers that its instruction reads.
    if (scope.owner == nullptr) return;
    for (const Use& use : scope.owner->uses) {
      if (use.access != Access::kRead || use.buffer < 0) continue;
      const Buffer& named = scope.outer->buffers[static_cast<size_t>(use.buffer)];
      if (History* history = HistoryOf(named)) history->Write(named.offset, named.offset + named.bytes, kBeforeProgram, -1);
    }
  }

  void Run(const std::vector<int>& fetched, ProgramFacts& facts) {
    for (size_t i = 0; i < program_.instructions.size() && !faults_.full(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      const int index = static_cast<int>(i);
      for (const Use& use : instruction.uses) {
        if (use.access != Access::kRead || use.buffer < 0) continue;
        Read(index, use.buffer);
        NotePart(index, use.buffer);
      }
      for (const Use& use : instruction.uses) {
        if (use.access != Access::kRead && use.buffer >= 0) Write(index, use.buffer, facts);
      }
      Communicate(index, facts);
      if (steps_ > kMaxSegmentSteps) return faults_.Add("order", scope_.name, "shares memory in more pieces than can be checked");
    }
    for (int buffer : fetched) {
      Read(kEnd, buffer);
      NotePart(kEnd, buffer);
    }
    NoteParts(facts);
    scope_.owner != nullptr ? CheckResults() : CheckRefusals(facts);
  }

 private:
  // The rank's own parts of sums that an instruction reads and passes on, by whole buffer.
  struct Parts {
    int state = -1;  // the first of them
    std::set<int> read, passed_on;

    void Read(int of, int family) {
      if (read.empty()) state = of;
      read.insert(family);
    }
  };

  static constexpr int kEnd = -1;  // stands for reads at the end of the program, where all streams have joined

  int Family(int buffer) const {
    const int whole = program_.buffers[static_cast<size_t>(buffer)].whole;
    return whole < 0 ? buffer : whole;
  }

  History* HistoryOf(const Buffer& buffer) {
    if (buffer.arena == Arena::kState) return &state_;
    if (buffer.arena == Arena::kInput) return &input_;
    return buffer.arena == Arena::kTransient ? &transient_ : nullptr;
  }

  std::string At(int index) const { return index == kEnd ? scope_.name + ", at its end" : Where(scope_, index); }

  void Read(int index, int buffer) {
    const Buffer& read = program_.buffers[static_cast<size_t>(buffer)];
    History* history = HistoryOf(read);
    if (history == nullptr) return;
    const auto [first, last] = history->Range(read.offset, read.offset + read.bytes);
    for (auto it = first; it != last; ++it, ++steps_) {
      if (!CheckValue(index, buffer, it->second)) return;
      if (index == kEnd) continue;
      std::vector<int>& readers = it->second.readers;
      const int stream = program_.instructions[static_cast<size_t>(index)].stream;
      const auto mine = std::find_if(readers.begin(), readers.end(),
                                     [&](int r) { return program_.instructions[static_cast<size_t>(r)].stream == stream; });
      mine == readers.end() ? readers.push_back(index) : void(*mine = index);
    }
  }

  // A rank's own part of a sum must reach an all-reduce or a reduce: directly, or added to by one launch that writes what is summed.
  // Reorder may come before and after that launch. Reads of bodies are declared by their instruction.
  void NotePart(int index, int buffer) {
    const Buffer& read = program_.buffers[static_cast<size_t>(buffer)];
    if (read.bytes == 0 || scope_.outer != nullptr) return;
    const bool sums = index != kEnd && SumsWhole(program_.instructions[static_cast<size_t>(index)]);
    const int family = Family(buffer);
    if (read.arena == Arena::kState) {
      // A part of a state may begin within it.
      const int state = scope_.tables.state.at(program_.buffers[static_cast<size_t>(family)].offset);
      if (scope_.plan.state[static_cast<size_t>(state)].partial && !sums) parts_[index].Read(state, family);
      return;
    }
    const auto producer = parts_.find(family_writer_[static_cast<size_t>(family)]);
    if (index == kEnd || producer == parts_.end() || !(sums || Reorders(index) || Reorders(producer->first))) return;
    producer->second.passed_on.insert(family);
    if (!sums) parts_[index].Read(producer->second.state, family);
  }

  static bool SumsWhole(const Instruction& instruction) {
    return Sums(instruction) && instruction.collective != Collective::kReduceScatterSum;
  }

  bool Reorders(int index) const {
    const Instruction& instruction = program_.instructions[static_cast<size_t>(index)];
    return IsReorder(instruction.domain, instruction.op);
  }

  // Each instruction that reads parts must pass on as many values.
  void NoteParts(ProgramFacts& facts) const {
    for (const auto& [index, parts] : parts_) {
      if (parts.passed_on.size() < parts.read.size()) facts.partial_reads.push_back({parts.state, index});
    }
  }

  // Whether a read of `buffer` at `index` finds its value in this segment.
  bool CheckValue(int index, int buffer, const Segment& segment) {
    const int family = Family(buffer);
    const int writer = family_writer_[static_cast<size_t>(family)];
    const std::string what = "reads " + Describe(program_.buffers[static_cast<size_t>(buffer)]);
    const auto fault = [&](std::string_view check, const std::string& why) {
      faults_.Add(check, At(index), what + why);
      return false;
    };
    if (segment.writer >= 0 && Family(segment.buffer) == family) {
      if (index == kEnd) return true;
      if (IsOfLaterPhase(segment.writer, index)) {
        return fault("values", ", in an earlier phase than " + Describe(program_, segment.writer) + ", which writes it");
      }
      if (clocks_.Before(segment.writer, index)) return true;
      return fault("order", ", but nothing makes it wait for " + Describe(program_, segment.writer) +
                                ", which writes it. A failing order: " + clocks_.OrderWithout(segment.writer, index));
    }
    if (segment.writer == kBeforeProgram && writer < 0) return true;
    if (segment.writer >= 0) {
      return fault("values", ", but finds what " + Describe(program_, segment.writer) + " wrote over it as " +
                                 Describe(program_.buffers[static_cast<size_t>(segment.buffer)]) +
                                 (writer < 0 ? "" : "; its value is written by " + Describe(program_, writer)));
    }
    if (writer >= 0) return fault("values", " before " + Describe(program_, writer) + " writes it");
    return fault("values", ", which is never written");
  }

  // Instructions without a phase read and write for all of them.
  bool IsOfLaterPhase(int a, int b) const {
    const auto phase = [&](int i) { return program_.instructions[static_cast<size_t>(i)].phase; };
    return phase(b) != PlanPhase::kNone && phase(a) > phase(b);
  }

  void Write(int index, int buffer, ProgramFacts& facts) {
    const Buffer& written = program_.buffers[static_cast<size_t>(buffer)];
    History* history = HistoryOf(written);
    const auto [first, last] = history->Range(written.offset, written.offset + written.bytes);
    for (auto it = first; it != last; ++it, ++steps_) {
      if (it->second.writer >= 0) CheckAfter(it->second.writer, index, "writes", it->second.buffer, written);
      for (int reader : it->second.readers) CheckAfter(reader, index, "reads", it->second.buffer, written);
    }
    history->Write(written.offset, written.offset + written.bytes, index, buffer);
    if (written.arena == Arena::kState && written.bytes > 0 && scope_.outer == nullptr) StateWrite(index, written, facts);
  }

  void CheckAfter(int earlier, int index, const std::string& does, int old, const Buffer& written) {
    if (clocks_.Before(earlier, index)) return;
    faults_.Add("order", At(index),
                "writes " + Describe(written) + ", but nothing makes it wait for " + Describe(program_, earlier) + ", which " + does +
                    (old < 0 ? " the same bytes" : " " + Describe(program_.buffers[static_cast<size_t>(old)])) +
                    ". A failing order: " + clocks_.OrderWithout(earlier, index));
  }

  void StateWrite(int index, const Buffer& written, ProgramFacts& facts) {
    const int state = scope_.tables.state.at(written.offset);
    const auto [known, fresh] = state_writes_.emplace(state, index);
    const auto passes_on = [&](int i) { return PassesOnState(program_.instructions[static_cast<size_t>(i)]); };
    if (!fresh && passes_on(index) && !passes_on(known->second)) {
      known->second = index;
    } else if (!fresh) {
      faults_.Add("writes", At(index),
                  "writes " + Describe(written) + ", which " + Describe(program_, known->second) + " has already written in this step");
    }
    facts.state_writes.push_back({state, index});
  }

  // Two communications at once can deadlock, so communication is one chain on every rank.
  void Communicate(int index, ProgramFacts& facts) {
    const InstructionKind kind = program_.instructions[static_cast<size_t>(index)].kind;
    if (kind != InstructionKind::kCollective && kind != InstructionKind::kSend && kind != InstructionKind::kRecv) return;
    if (!facts.communication.empty() && !clocks_.Before(facts.communication.back(), index)) {
      faults_.Add("order", At(index),
                  "nothing makes it wait for " + Describe(program_, facts.communication.back()) +
                      ": ranks could communicate in different orders: " + clocks_.OrderWithout(facts.communication.back(), index));
    }
    facts.communication.push_back(index);
  }

  // A failed step changes nothing. Refusals by other ranks are checked with the entry.
  void CheckRefusals(ProgramFacts& facts) {
    const auto said = scope_.plan.properties.find(kFailedSteps);
    if (said == scope_.plan.properties.end() || said->second != kChangeNothing) return;
    const auto before = [&](int a, int b) { return a != b && clocks_.Before(a, b); };
    std::vector<int> refusing;
    try {
      refusing = Refusals(scope_.plan, program_, before);
    } catch (const Error& error) {
      return faults_.Add("names", scope_.name, error.message());
    }
    // What comes after the last of them on a stream comes after all of them there.
    std::map<int, int> last_of_stream;
    for (int i : refusing) last_of_stream[program_.instructions[static_cast<size_t>(i)].stream] = i;
    const auto after_all = [&](int x) {
      return std::all_of(last_of_stream.begin(), last_of_stream.end(), [&](const auto& last) { return before(last.second, x); });
    };
    for (const auto& [state, write] : facts.state_writes) {
      if (after_all(write)) continue;
      const auto late = std::find_if(refusing.begin(), refusing.end(), [&](int i) { return !before(i, write); });
      faults_.Add("order", At(write),
                  "changes state '" + Escaped(scope_.plan.state[static_cast<size_t>(state)].name) + "', but nothing makes it wait for " +
                      Describe(program_, *late) + ", which may refuse the batch: the step could fail after changing it");
    }
    const std::vector<int>& operations = facts.communication;
    if (!refusing.empty() || !operations.empty()) CheckKeepsState(facts);
    facts.may_refuse = !refusing.empty();
    facts.accepted_at = facts.changes_after = operations.size();
    facts.accepted_at = static_cast<size_t>(std::find_if(operations.begin(), operations.end(), after_all) - operations.begin());
    for (const auto& [state, write] : facts.state_writes) {
      const auto ended = [&, at = write](int operation) { return before(operation, at); };
      const auto first_open = std::partition_point(operations.begin(), operations.end(), ended);
      facts.changes_after = std::min(facts.changes_after, static_cast<size_t>(first_open - operations.begin()));
    }
  }

  // Whether it is a broadcast of what is in this place on each device. On the device that it comes from it changes nothing, so it may
  // follow the write of a state there; on the others it is the write.
  bool PassesOnState(const Instruction& instruction) const {
    if (instruction.kind != InstructionKind::kCollective || instruction.collective != Collective::kBroadcast) return false;
    const auto buffer = [&](size_t use) { return program_.buffers[static_cast<size_t>(instruction.uses[use].buffer)]; };
    return SamePlace(buffer(0), buffer(1));
  }

  // After a kernel that refuses the batch, a device continues, whereas the CPU stops.
  void CheckKeepsState(const ProgramFacts& facts) {
    for (const auto& [state, write] : facts.state_writes) {
      const Instruction& instruction = program_.instructions[static_cast<size_t>(write)];
      const int device = program_.streams[static_cast<size_t>(instruction.stream)].device;
      if (scope_.plan.targets[static_cast<size_t>(device)].device == DeviceKind::kCpu) continue;
      const KernelRow* const row = instruction.kind == InstructionKind::kLaunch ? scope_.find(instruction.kernel) : nullptr;
      if (instruction.kind == InstructionKind::kCopy || (row != nullptr && row->preserves_state_on_refusal) || PassesOnState(instruction))
        continue;
      faults_.Add("order", At(write),
                  "changes state '" + Escaped(scope_.plan.state[static_cast<size_t>(state)].name) +
                      "', but does not check whether the batch was refused: the step could fail after changing it");
    }
  }

  // Every path through a body must write the outputs of its instruction.
  void CheckResults() {
    std::map<std::tuple<Arena, int64_t, int64_t>, int> last;  // by place: the last value that was written there
    for (const Instruction& instruction : program_.instructions) {
      for (const Use& use : instruction.uses) {
        if (use.access != Access::kWrite || use.buffer < 0) continue;
        const Buffer& written = program_.buffers[static_cast<size_t>(use.buffer)];
        last[{written.arena, written.offset, written.bytes}] = use.buffer;
      }
    }
    for (const Use& use : scope_.owner->uses) {
      if (use.access != Access::kWrite || use.buffer < 0) continue;
      const Buffer& named = scope_.outer->buffers[static_cast<size_t>(use.buffer)];
      if (named.bytes == 0) continue;
      const auto made = last.find({named.arena, named.offset, named.bytes});
      if (made == last.end() || !SamePlace(program_.buffers[static_cast<size_t>(made->second)], named)) {
        faults_.Add("values", At(kEnd), "nothing has written " + Describe(named) + ", which its instruction outputs");
      } else {
        Read(kEnd, made->second);
      }
    }
  }

  const Scope& scope_;
  const Program& program_;
  const Clocks& clocks_;
  FaultList& faults_;
  History state_;
  History transient_;
  History input_;
  std::vector<int> family_writer_;             // by whole buffer: an instruction that writes it or a part of it, or -1
  std::unordered_map<int, int> state_writes_;  // by state tensor: the instruction that writes it
  std::map<int, Parts> parts_;                 // by instruction
  int64_t steps_ = 0;
};

}  // namespace

void CheckOrder(const Scope& scope, const std::vector<int>& fetched, FaultList& faults, ProgramFacts& facts) {
  const Clocks clocks(scope, faults);
  if (clocks.usable()) Sweep(scope, clocks, faults).Run(fetched, facts);
}

}  // namespace gradloom::verify
