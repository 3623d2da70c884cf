// Checks "names", "bounds" and "writes" within one program: ids, buffers, which instruction writes which value, and bodies.
#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/plan/verify_scope.h"

namespace gradloom::verify {
namespace {

constexpr int kMaxThreads = 4096;

bool InArena(const Scope& scope, const Buffer& buffer) {
  const auto end = CheckedAdd(buffer.offset, buffer.bytes);
  if (buffer.offset < 0 || buffer.bytes < 0 || !end) return false;
  switch (buffer.arena) {
    case Arena::kState: return *end <= scope.plan.places[static_cast<size_t>(scope.place)].state_bytes;
    case Arena::kConstants: return *end <= scope.plan.places[static_cast<size_t>(scope.place)].constants_bytes;
    case Arena::kTransient: return *end <= scope.transient_bytes;
    case Arena::kStep: return *end <= scope.plan.step.bytes;
    case Arena::kFeed: return buffer.offset == 0;
    case Arena::kInput: return *end <= scope.input_bytes;
  }
  return false;
}

// Whether the plan's tables have this very tensor at the buffer's offset.
bool AgreesWithTables(const Scope& scope, const Buffer& buffer) {
  if (buffer.bytes == 0) return true;
  if (buffer.arena == Arena::kState) {
    const auto found = scope.tables.state.find(buffer.offset);
    if (found == scope.tables.state.end()) return false;
    const StateTensor& state = scope.plan.state[static_cast<size_t>(found->second)];
    return state.dtype == buffer.dtype && state.bytes == buffer.bytes && state.layout == buffer.layout &&
           (state.layout.plain() || state.shape == buffer.shape);
  }
  if (buffer.arena == Arena::kConstants) {
    const auto found = scope.tables.constants.find(buffer.offset);
    if (found == scope.tables.constants.end()) return false;
    const Tensor& value = scope.plan.constants[static_cast<size_t>(found->second)].value;
    return value.dtype() == buffer.dtype && value.bytes() == buffer.bytes && buffer.layout.plain();
  }
  if (buffer.arena == Arena::kStep) {
    const auto found = scope.tables.step.find(buffer.offset);
    return found != scope.tables.step.end() && found->second == buffer.dtype && DTypeBytes(buffer.dtype) == buffer.bytes;
  }
  return true;
}

// Whether both tensors are the same rows, stored one after another with the same padding.
bool HaveSamePaddedRows(const Buffer& a, const Buffer& b) {
  const auto padding = [](const Buffer& buffer) {
    const int last = buffer.shape.rank() - 1;
    const auto& [order, blocks] = buffer.layout;
    const bool only_rows = last >= 0 && order.empty() && blocks.size() == 1 && blocks[0].dim == last;
    return only_rows ? std::pair(buffer.shape[last], blocks[0].size) : std::pair<int64_t, int64_t>(-1, -1);
  };
  return a.bytes == b.bytes && padding(a).first >= 0 && padding(a) == padding(b);
}

}  // namespace

bool HoldTheSame(const Buffer& a, const Buffer& b) {
  if (a.dtype != b.dtype || a.bytes != b.bytes || !(a.layout == b.layout)) return false;
  return a.layout.plain() || a.shape == b.shape || HaveSamePaddedRows(a, b);
}

namespace {

// A part is a range of its whole: it has the same dtype, and a layout that permits ranges.
bool IsRangeOfWhole(const Program& program, int index) {
  const Buffer& part = program.buffers[static_cast<size_t>(index)];
  if (part.whole < 0 || part.whole >= static_cast<int>(program.buffers.size()) || part.whole == index) return false;
  const Buffer& whole = program.buffers[static_cast<size_t>(part.whole)];
  if (whole.whole != -1 || whole.arena != part.arena || whole.feed != part.feed || whole.dtype != part.dtype) return false;
  if (part.offset < whole.offset || part.bytes > whole.bytes || part.offset - whole.offset > whole.bytes - part.bytes) return false;
  return (part.layout.plain() && whole.layout.plain()) || part.operand() == whole.operand() || HaveSamePaddedRows(part, whole);
}

void CheckBuffer(const Scope& scope, int index, FaultList& faults) {
  const Buffer& buffer = scope.program.buffers[static_cast<size_t>(index)];
  const auto fault = [&](const std::string& message) {
    faults.Add("bounds", scope.name + ", buffer " + std::to_string(index) + " '" + Escaped(buffer.name) + "'", message);
  };
  if (!InArena(scope, buffer)) {
    return fault(std::to_string(buffer.bytes) + " bytes at " + std::to_string(buffer.offset) + " do not lie in the arena");
  }
  if (buffer.offset % kAlignmentBytes != 0) {
    fault("offset " + std::to_string(buffer.offset) + " is not a multiple of " + std::to_string(kAlignmentBytes));
  }
  if ((buffer.arena == Arena::kFeed) != (buffer.feed >= 0) || buffer.feed < -1)
    fault("feed " + std::to_string(buffer.feed) + " does not fit the arena");
  if (buffer.dtype == DType::kUndefined) {
    if (buffer.arena != Arena::kTransient || buffer.whole != -1) fault("scratch must be transient and whole");
    return;
  }
  if (BytesOf(buffer.dtype, buffer.shape, buffer.layout) != buffer.bytes) {
    return fault(std::to_string(buffer.bytes) + " bytes do not match its type, shape and layout");
  }
  if (buffer.whole != -1) {
    if (!IsRangeOfWhole(scope.program, index)) fault("is not a range of buffer " + std::to_string(buffer.whole));
  } else if (!AgreesWithTables(scope, buffer)) {
    fault("nothing of its type and size lies at byte " + std::to_string(buffer.offset) + " of the arena");
  }
}

// The parts of a whole are either views of all of it, or the values that it consists of, of which no two share a byte: a part that was
// shifted within its whole would be read as its neighbour. Parts without bytes share none.
void CheckParts(const Scope& scope, FaultList& faults) {
  const std::vector<Buffer>& buffers = scope.program.buffers;
  std::vector<int> parts;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const int whole = buffers[i].whole;
    if (whole >= 0 && buffers[i].bytes > 0 && buffers[i].bytes != buffers[static_cast<size_t>(whole)].bytes)
      parts.push_back(static_cast<int>(i));
  }
  const auto at = [&](int buffer) -> const Buffer& { return buffers[static_cast<size_t>(buffer)]; };
  std::sort(parts.begin(), parts.end(), [&](int a, int b) {
    return std::tuple(at(a).whole, at(a).offset, at(a).bytes, a) < std::tuple(at(b).whole, at(b).offset, at(b).bytes, b);
  });
  for (size_t k = 1; k < parts.size(); ++k) {
    const Buffer &a = at(parts[k - 1]), &b = at(parts[k]);
    if (a.whole != b.whole || !Overlap(a, b)) continue;
    faults.Add("bounds", scope.name + ", buffer " + std::to_string(parts[k]) + " '" + Escaped(b.name) + "'",
               "overlaps " + Describe(a) + ", another part of the same whole");
  }
}

void CheckStreams(const Scope& scope, FaultList& faults) {
  const std::vector<Stream>& streams = scope.program.streams;
  if (streams.empty() || streams.size() > kMaxStreams) {
    return faults.Add("names", scope.name,
                      "has " + std::to_string(streams.size()) + " streams; expected 1 to " + std::to_string(kMaxStreams));
  }
  const int device = scope.outer != nullptr ? scope.outer->streams[0].device : streams[0].device;
  for (size_t i = 0; i < streams.size(); ++i) {
    const std::string where = scope.name + ", stream " + std::to_string(i);
    if (streams[i].device < 0 || streams[i].device >= static_cast<int>(scope.plan.targets.size())) {
      faults.Add("names", where,
                 "device " + std::to_string(streams[i].device) + " is out of range: the plan has " +
                     std::to_string(scope.plan.targets.size()) + " targets");
    } else if (streams[i].device != device) {
      faults.Add("names", where, "device " + std::to_string(streams[i].device) + " is not the program's device " + std::to_string(device));
    }
    if (streams[i].threads < 1 || streams[i].threads > kMaxThreads)
      faults.Add("names", where, "has " + std::to_string(streams[i].threads) + " threads");
  }
}

bool IsCopyStream(const Program& program, int stream) {
  return stream >= 0 && stream < static_cast<int>(program.streams.size()) &&
         program.streams[static_cast<size_t>(stream)].kind == StreamKind::kCopy;
}

// A copy stream runs while the previous step computes and touches nothing of that step: it only reads feeds, which belong to the caller,
// and writes the other input slot.
void CheckCopyStream(const Scope& scope, int index, FaultList& faults) {
  const Program& program = scope.program;
  const Instruction& instruction = program.instructions[static_cast<size_t>(index)];
  if (!IsCopyStream(program, instruction.stream) || instruction.kind == InstructionKind::kRecord) return;
  const bool copies = instruction.kind == InstructionKind::kCopy && scope.outer == nullptr &&
                      std::all_of(instruction.uses.begin(), instruction.uses.end(), [&](const Use& use) {
                        if (use.buffer < 0 || use.buffer >= static_cast<int>(program.buffers.size())) return false;
                        const Arena arena = program.buffers[static_cast<size_t>(use.buffer)].arena;
                        return arena == (use.access == Access::kRead ? Arena::kFeed : Arena::kInput);
                      });
  if (!copies) faults.Add("order", Where(scope, index), "a copy stream runs ahead of its step: it may only copy feeds into input slots");
}

// Ids are in range, and each operand permits its kind of access.
void CheckUses(const Scope& scope, int index, FaultList& faults) {
  const Program& program = scope.program;
  const Instruction& instruction = program.instructions[static_cast<size_t>(index)];
  // Describe() must not be called before all ids are known to be in range.
  const auto fault = [&](std::string_view check, const std::string& message) { faults.Add(check, Where(scope, index), message); };
  if (instruction.stream < 0 || instruction.stream >= static_cast<int>(program.streams.size())) {
    fault("names",
          "stream " + std::to_string(instruction.stream) + " is out of range: the program has " + std::to_string(program.streams.size()));
  }
  if (scope.owner != nullptr && instruction.phase != PlanPhase::kNone && instruction.phase != scope.owner->phase) {
    fault("values", "is of phase '" + std::string(PhaseName(instruction.phase)) + "', unlike the instruction around it");
  }
  const bool is_event = instruction.kind == InstructionKind::kRecord || instruction.kind == InstructionKind::kWait;
  if (is_event ? instruction.event < 0 || instruction.event >= program.num_events : instruction.event != -1) {
    fault("names",
          "event " + std::to_string(instruction.event) + " is out of range: the program has " + std::to_string(program.num_events));
  }
  for (const Use& use : instruction.uses) {
    if (use.buffer == -1 && use.access != Access::kScratch) continue;
    if (use.buffer < 0 || use.buffer >= static_cast<int>(program.buffers.size())) {
      fault("names",
            "buffer " + std::to_string(use.buffer) + " is out of range: the program has " + std::to_string(program.buffers.size()));
      continue;
    }
    const Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
    if ((use.access == Access::kScratch) != (buffer.dtype == DType::kUndefined)) {
      fault("names", Describe(buffer) +
                         (use.access == Access::kScratch ? " is a value but is used as scratch" : " is scratch but is used as a value"));
    }
    const bool fills = buffer.arena == Arena::kInput && IsCopyStream(program, instruction.stream);
    if (use.access == Access::kWrite && buffer.arena != Arena::kTransient && buffer.arena != Arena::kState && !fills) {
      fault("writes", Describe(buffer) + " is written, but is read-only in a step");
    }
    if (use.access == Access::kWrite && buffer.arena == Arena::kState && buffer.whole != -1) {
      fault("writes", Describe(buffer) + " is a part of a state tensor: states must be written whole");
    }
  }
}

// A value is written by one instruction, and a byte of a whole through one of its parts: if the ranges of one family are sorted, two writes
// of the same byte overlap as neighbours. Ranges without bytes, which would come between neighbours, are left out.
void CheckSingleWrites(const Scope& scope, FaultList& faults) {
  struct Write {
    int family;
    int buffer;
    int instruction;
  };
  const Program& program = scope.program;
  const auto at = [&](int buffer) -> const Buffer& { return program.buffers[static_cast<size_t>(buffer)]; };
  const auto fault = [&](int first, int second, int buffer) {
    faults.Add("writes", Where(scope, second),
               "writes " + Describe(at(buffer)) + ", which " + Describe(program, first) + " has already written: a buffer holds one value");
  };
  std::vector<Write> writes;
  std::vector<int> writer(program.buffers.size(), -1);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (const Use& use : program.instructions[i].uses) {
      if (use.access != Access::kWrite || use.buffer < 0) continue;
      const int index = static_cast<int>(i), whole = at(use.buffer).whole;
      int& known = writer[static_cast<size_t>(use.buffer)];
      if (known >= 0) {
        fault(known, index, use.buffer);
        continue;
      }
      known = index;
      if (at(use.buffer).bytes > 0) writes.push_back({whole < 0 ? use.buffer : whole, use.buffer, index});
    }
  }
  std::stable_sort(writes.begin(), writes.end(), [&](const Write& a, const Write& b) {
    return a.family != b.family ? a.family < b.family : at(a.buffer).offset < at(b.buffer).offset;
  });
  for (size_t k = 1; k < writes.size(); ++k) {
    const Write& a = writes[k - 1];
    const Write& b = writes[k];
    if (a.family == b.family && Overlap(at(a.buffer), at(b.buffer)))
      fault(std::min(a.instruction, b.instruction), std::max(a.instruction, b.instruction), b.buffer);
  }
}

// A buffer that no instruction touches is the trace of a lost instruction.
void CheckAllUsed(const Scope& scope, const std::vector<int>& fetched, FaultList& faults) {
  const Program& program = scope.program;
  std::vector<bool> used(program.buffers.size());
  const auto touch = [&](int buffer) {
    if (buffer < 0 || buffer >= static_cast<int>(program.buffers.size())) return;
    used[static_cast<size_t>(buffer)] = true;
    const int whole = program.buffers[static_cast<size_t>(buffer)].whole;
    if (whole >= 0) used[static_cast<size_t>(whole)] = true;
  };
  for (const Instruction& instruction : program.instructions) {
    for (const Use& use : instruction.uses) touch(use.buffer);
  }
  for (int buffer : fetched) touch(buffer);
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) faults.Add("values", scope.name, "no instruction uses buffer " + std::to_string(i) + " " + Describe(program.buffers[i]));
  }
}

// A given buffer must be the tensor that its name says: another tensor of the same type and size could be read as well.
void CheckGivenNames(const Scope& scope, FaultList& faults) {
  const std::vector<Buffer>& buffers = scope.program.buffers;
  const std::vector<int> writers = Writers(scope.program);
  std::vector<bool> written(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (writers[i] >= 0) written[buffers[i].whole < 0 ? i : static_cast<size_t>(buffers[i].whole)] = true;
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& buffer = buffers[i];
    if (written[i] || buffer.whole >= 0 || buffer.bytes == 0 || (buffer.arena != Arena::kState && buffer.arena != Arena::kConstants))
      continue;
    const bool state = buffer.arena == Arena::kState;
    const int index = (state ? scope.tables.state : scope.tables.constants).at(buffer.offset);
    const std::string& name =
        state ? scope.plan.state[static_cast<size_t>(index)].name : scope.plan.constants[static_cast<size_t>(index)].name;
    if (buffer.name != name) faults.Add("values", scope.name, Describe(buffer) + " is '" + Escaped(name) + "' in the plan's tables");
  }
}

// A body touches only what its instruction declares: it writes within its writes and scratch, and what it reads without writing is one of
// its reads. It may access constants, feeds and step parameters directly.
void CheckBodyBoundary(const Scope& scope, FaultList& faults) {
  const Program& outer = *scope.outer;
  const std::vector<int> writers = Writers(scope.program);
  std::vector<bool> family_written(writers.size());
  for (size_t b = 0; b < writers.size(); ++b) {
    if (writers[b] >= 0)
      family_written[static_cast<size_t>(scope.program.buffers[b].whole < 0 ? static_cast<int>(b) : scope.program.buffers[b].whole)] = true;
  }
  const auto any_use = [&](auto&& fits) {
    return std::any_of(scope.owner->uses.begin(), scope.owner->uses.end(),
                       [&](const Use& use) { return use.buffer >= 0 && fits(use, outer.buffers[static_cast<size_t>(use.buffer)]); });
  };
  // Within a body, a view of a state tensor counts as that state tensor.
  const auto name_of = [&](const Buffer& named) -> const std::string& {
    return named.arena == Arena::kState && named.whole >= 0 ? outer.buffers[static_cast<size_t>(named.whole)].name : named.name;
  };
  for (size_t b = 0; b < writers.size(); ++b) {
    const Buffer& buffer = scope.program.buffers[b];
    const bool open = buffer.arena != Arena::kTransient && buffer.arena != Arena::kState && buffer.arena != Arena::kInput;
    if (buffer.whole >= 0 || open) continue;
    const bool changes = family_written[b] || buffer.dtype == DType::kUndefined;
    const bool allowed = any_use([&](const Use& use, const Buffer& named) {
      // Compared by name as well: another operand of the same type could be read in its place.
      if (!changes) return use.access == Access::kRead && SamePlace(named, buffer) && name_of(named) == buffer.name;
      return use.access != Access::kRead && named.arena == buffer.arena && named.offset <= buffer.offset &&
             buffer.offset + buffer.bytes <= named.offset + named.bytes;
    });
    if (!allowed) {
      faults.Add("bounds", scope.name,
                 std::string(changes ? "writes " : "reads ") + Describe(buffer) + ", which its instruction does not declare");
    }
  }
}

void CheckBodies(const Scope& scope, FaultList& faults) {
  const Program& program = scope.program;
  for (size_t i = 0; i < program.instructions.size() && !faults.full(); ++i) {
    const Instruction& instruction = program.instructions[i];
    for (size_t k = 0; k < instruction.bodies.size(); ++k) {
      const std::string name = scope.name + ", #" + std::to_string(i) + ", body " + std::to_string(k);
      const Program& of_body = instruction.bodies[k];
      if (of_body.place != scope.place) {
        faults.Add("names", name,
                   "has place " + std::to_string(of_body.place) + ", but the program around it has " + std::to_string(scope.place));
        continue;
      }
      Scope body{scope.plan, scope.tables, scope.find, of_body, name, scope.place, scope.transient_bytes, scope.input_bytes};
      body.outer = &program;
      body.owner = &instruction;
      body.depth = scope.depth + 1;
      ProgramFacts facts;
      CheckProgram(body, {}, faults, facts);
    }
  }
}

}  // namespace

void CheckProgram(const Scope& scope, const std::vector<int>& fetched, FaultList& faults, ProgramFacts& facts) {
  const Program& program = scope.program;
  const size_t before = faults.size();
  if (scope.depth > kMaxDepth) return faults.Add("names", scope.name, "bodies are nested more than " + std::to_string(kMaxDepth) + " deep");
  if (program.transient_bytes < 0 || program.transient_bytes > kMaxArenaBytes || (scope.outer != nullptr && program.transient_bytes != 0))
    faults.Add("bounds", scope.name, "has a transient arena of " + std::to_string(program.transient_bytes) + " bytes");
  if (program.input_bytes < 0 || program.input_bytes > kMaxArenaBytes || (scope.outer != nullptr && program.input_bytes != 0))
    faults.Add("bounds", scope.name, "has input slots of " + std::to_string(program.input_bytes) + " bytes");
  if (program.num_events < 0 || program.num_events > static_cast<int>(program.instructions.size()))
    faults.Add("names", scope.name, "has " + std::to_string(program.num_events) + " events");
  CheckStreams(scope, faults);
  for (size_t i = 0; i < program.buffers.size() && !faults.full(); ++i) CheckBuffer(scope, static_cast<int>(i), faults);
  if (faults.size() == before) CheckParts(scope, faults);
  for (int buffer : fetched) {
    if (buffer < 0 || buffer >= static_cast<int>(program.buffers.size()))
      faults.Add("names", scope.name, "fetched buffer " + std::to_string(buffer) + " is out of range");
  }
  // The later checks rely on ids and bounds, so each stage ends the check if it finds a fault.
  if (faults.size() > before) return;
  for (size_t i = 0; i < program.instructions.size() && !faults.full(); ++i) CheckUses(scope, static_cast<int>(i), faults);
  for (size_t i = 0; i < program.instructions.size() && !faults.full(); ++i) CheckCopyStream(scope, static_cast<int>(i), faults);
  if (faults.size() > before) return;
  for (size_t i = 0; i < program.instructions.size() && !faults.full(); ++i) CheckInstruction(scope, static_cast<int>(i), faults);
  CheckSingleWrites(scope, faults);
  CheckGivenNames(scope, faults);
  if (scope.outer != nullptr) CheckBodyBoundary(scope, faults);
  CheckBodies(scope, faults);
  if (faults.size() > before) return;
  CheckOrder(scope, fetched, faults, facts);
  // It follows values back to their writers, which ends only if each precedes its readers.
  if (scope.outer == nullptr && faults.size() == before) CheckCopies(scope, facts, faults);
  CheckAllUsed(scope, fetched, faults);
  facts.sound = faults.size() == before;
}

}  // namespace gradloom::verify
