// Checks one instruction: that its kernel accepts its buffers, and that its operands overlap only where they may.
#include <algorithm>
#include <string>

#include "runtime/base/error.h"
#include "runtime/plan/verify_scope.h"

namespace gradloom::verify {
namespace {

constexpr int64_t kMaxTrips = int64_t{1} << 31;

// The operands of one kind of access, in order; absent ones are null.
std::vector<const Buffer*> Operands(const Program& program, const Instruction& instruction, Access access) {
  std::vector<const Buffer*> operands;
  for (const Use& use : instruction.uses) {
    if (use.access != access) continue;
    operands.push_back(use.buffer < 0 ? nullptr : &program.buffers[static_cast<size_t>(use.buffer)]);
  }
  return operands;
}

bool IsScalar(const Buffer* buffer, DType dtype) {
  return buffer != nullptr && buffer->dtype == dtype && buffer->bytes == DTypeBytes(dtype);
}

class InstructionCheck {
 public:
  InstructionCheck(const Scope& scope, int index, FaultList& faults)
      : scope_(scope),
        index_(index),
        instruction_(scope.program.instructions[static_cast<size_t>(index)]),
        reads_(Operands(scope.program, instruction_, Access::kRead)),
        writes_(Operands(scope.program, instruction_, Access::kWrite)),
        scratch_(Operands(scope.program, instruction_, Access::kScratch)),
        faults_(faults) {}

  void Run() {
    switch (instruction_.kind) {
      case InstructionKind::kLaunch: Launch(); break;
      case InstructionKind::kCopy: Copy(); break;
      case InstructionKind::kRecord:
      case InstructionKind::kWait: Arity(0, 0); break;
      case InstructionKind::kCollective: Collect(); break;
      case InstructionKind::kSend: Transfer(1, 0); break;
      case InstructionKind::kRecv: Transfer(0, 1); break;
      case InstructionKind::kIf: If(); break;
      case InstructionKind::kLoop: Loop(); break;
    }
    if (!Is(InstructionKind::kIf) && !Is(InstructionKind::kLoop) && !instruction_.bodies.empty()) Fault("names", "has a body");
    Overlaps();
  }

 private:
  bool Is(InstructionKind kind) const { return instruction_.kind == kind; }
  void Fault(std::string_view check, const std::string& message) { faults_.Add(check, Where(scope_, index_), message); }

  // Checks that there are exactly this many operands, all present except for `optional` writes, and no scratch.
  bool Arity(size_t reads, size_t writes, bool optional = false) {
    const bool absent =
        std::count(reads_.begin(), reads_.end(), nullptr) > 0 || (!optional && std::count(writes_.begin(), writes_.end(), nullptr) > 0);
    if (reads_.size() == reads && writes_.size() == writes && scratch_.empty() && !absent) return true;
    Fault("names", "takes " + std::to_string(reads) + " reads and " + std::to_string(writes) + " writes, but has " +
                       std::to_string(reads_.size()) + " and " + std::to_string(writes_.size()));
    return false;
  }

  // Kernels and the runtime find operands by position: reads, then writes, then scratch.
  bool InOrder() const {
    return std::is_sorted(instruction_.uses.begin(), instruction_.uses.end(),
                          [](const Use& a, const Use& b) { return a.access < b.access; });
  }

  void Launch() {
    const KernelRow* row = scope_.find(instruction_.kernel);
    if (row == nullptr) return Fault("names", "this build has no kernel '" + Escaped(instruction_.kernel) + "'");
    if (row->op != instruction_.op || row->domain != instruction_.domain) {
      return Fault("names", "kernel '" + Escaped(instruction_.kernel) + "' does not compute operator '" + Escaped(instruction_.op) +
                                "' of domain '" + Escaped(instruction_.domain) + "'");
    }
    const Stream& stream = scope_.program.streams[static_cast<size_t>(instruction_.stream)];
    const Target& target = scope_.plan.targets[static_cast<size_t>(stream.device)];
    if (row->device != target.device) {
      return Fault("names", "kernel '" + Escaped(instruction_.kernel) + "' does not run on " + std::string(DeviceKindName(target.device)));
    }
    if (!InOrder()) return Fault("names", "its uses must be inputs, outputs and scratch, in this order");
    try {
      const KernelCall call = CallOf(scope_.plan, scope_.program, instruction_);
      const std::string rejection = Rejection(*row, call);
      if (!rejection.empty()) return Fault("names", "the kernel rejects this launch: " + rejection);
      Scratch(row->scratch_bytes == nullptr ? 0 : row->scratch_bytes(call));
    } catch (const Error& error) {  // for example, an attribute of another type than the kernel expects
      Fault("names", "the kernel rejects this launch: " + error.message());
    }
    may_alias_ = row->may_alias;
  }

  void Scratch(int64_t needed) {
    const size_t wanted = needed > 0 ? 1 : 0;
    if (scratch_.size() != wanted || (wanted == 1 && scratch_[0]->bytes < needed)) {
      Fault("bounds", "the kernel needs " + std::to_string(needed) + " bytes of scratch, but has " +
                          (scratch_.empty() ? "none" : std::to_string(scratch_[0]->bytes)));
    }
  }

  void Copy() {
    if (!Arity(1, 1)) return;
    if (!InOrder()) return Fault("names", "its uses must be a read, then a write");
    if (!HoldTheSame(*reads_[0], *writes_[0])) {
      Fault("bounds", "copies " + Describe(*reads_[0]) + " to " + Describe(*writes_[0]) + " of another type, size or layout");
    }
  }

  void Collect() {
    // Only all-reduces and reduces take several tensors in one collective.
    const bool reduces = Collects(Collective::kReduceSum), many = (reduces || Collects(Collective::kAllReduceSum)) && !reads_.empty();
    if (!(many ? Arity(reads_.size(), reads_.size(), reduces) : Arity(1, 1)) || !Outermost()) return;
    if (!InOrder()) return Fault("names", "its uses must be reads, then writes");
    if (instruction_.group < 0) Fault("names", "has no group");
    if (instruction_.root < 0 || (instruction_.root > 0 && !Collects(Collective::kBroadcast))) {
      Fault("ranks", "root " + std::to_string(instruction_.root) + " is out of range");
    }
    if (instruction_.roots.size() != (reduces ? reads_.size() : 0)) {
      Fault("ranks", "has " + std::to_string(instruction_.roots.size()) + " roots for " + std::to_string(reads_.size()) + " operands");
    }
    for (size_t k = 0; k < reads_.size(); ++k) {
      if (writes_[k] == nullptr) continue;
      // The parts of the members are ranges.
      const bool fits = MakesEqual() ? HoldTheSame(*reads_[k], *writes_[k])
                                     : reads_[k]->dtype == writes_[k]->dtype && reads_[k]->layout.plain() && writes_[k]->layout.plain();
      if (!fits)
        Fault("bounds", "reads " + Describe(*reads_[k]) + " and writes " + Describe(*writes_[k]) + " of another type, size or layout");
    }
  }

  bool Collects(Collective collective) const { return Is(InstructionKind::kCollective) && instruction_.collective == collective; }

  // Whether each result of the collective is like its operand, and may take its place.
  bool MakesEqual() const {
    return Collects(Collective::kAllReduceSum) || Collects(Collective::kBroadcast) || Collects(Collective::kReduceSum);
  }

  void Transfer(size_t reads, size_t writes) {
    if (Arity(reads, writes) && Outermost() && instruction_.peer < 0) Fault("names", "has no peer");
  }

  // Ranks may take different branches and numbers of iterations, so a body cannot contain communication.
  bool Outermost() {
    if (scope_.outer != nullptr) Fault("ranks", "communication within an if or loop");
    return scope_.outer == nullptr;
  }

  void If() {
    if (instruction_.bodies.size() != 2) return Fault("names", "an if must have two bodies");
    if (!InOrder()) return Fault("names", "its uses must be reads, writes and scratch, in this order");
    if (reads_.empty() || !IsScalar(reads_[0], DType::kBool)) return Fault("names", "its first operand must be a bool scalar");
    AllPresent(1);
  }

  // Each loop-carried value is written over the previous one, so that it exists after any number of iterations, and each iteration finds
  // the same layout as the first one. Any other value there would be overwritten by the first iteration.
  // The condition is listed twice if it is carried.
  void Loop() {
    if (instruction_.bodies.size() != 1) return Fault("names", "a loop must have one body");
    if (instruction_.trip_bound < 0 || instruction_.trip_bound > kMaxTrips)
      Fault("names", "trip bound " + std::to_string(instruction_.trip_bound) + " is out of range");
    if (!InOrder()) return Fault("names", "its uses must be reads, writes and scratch, in this order");
    if (reads_.size() < 2 || (reads_[0] != nullptr && !IsScalar(reads_[0], DType::kInt64)) ||
        (reads_[1] != nullptr && !IsScalar(reads_[1], DType::kBool))) {
      return Fault("names", "its first operands must be a trip count and a condition");
    }
    if (!AllPresent(2)) return;
    for (const Buffer* write : writes_) {
      if (write->bytes == 0) continue;
      const Buffer* before = nullptr;
      for (const Buffer* read : reads_) {
        if (read == nullptr || !SameRange(*read, *write)) continue;
        if (before != nullptr && before != read)
          return Fault("values", Describe(*write) + " is written over both " + Describe(*before) + " and " + Describe(*read));
        before = read;
      }
      if (before == nullptr || !SamePlace(*before, *write)) Fault("values", Describe(*write) + " has no value before the first iteration");
    }
  }

  bool AllPresent(size_t first_read) {
    const bool absent =
        std::count(reads_.begin() + static_cast<std::ptrdiff_t>(std::min(first_read, reads_.size())), reads_.end(), nullptr) +
            std::count(writes_.begin(), writes_.end(), nullptr) >
        0;
    if (absent) Fault("names", "an operand is absent");
    return !absent;
  }

  // Whether output k may alias input j exactly.
  bool MayAlias(size_t k, size_t j) const {
    if (Is(InstructionKind::kIf) || Is(InstructionKind::kLoop)) return true;  // ordered by the instructions of the body
    if (Is(InstructionKind::kCollective)) return j == k && MakesEqual();
    return std::any_of(may_alias_.begin(), may_alias_.end(),
                       [&](const Aliasing& pair) { return pair.output == static_cast<int>(k) && pair.input == static_cast<int>(j); });
  }

  // A written operand shares no byte with any other operand of the instruction, except for whole operands that the kernel reads before it
  // writes them. Written operands are sorted by offset and disjoint, so each read is compared with only one of them.
  void Overlaps() {
    struct Changed {
      const Buffer* buffer;
      bool scratch;
      size_t position;
    };
    std::vector<Changed> changed;
    for (size_t k = 0; k < writes_.size(); ++k) changed.push_back({writes_[k], false, k});
    for (size_t k = 0; k < scratch_.size(); ++k) changed.push_back({scratch_[k], true, k});
    std::erase_if(changed, [](const Changed& c) { return c.buffer == nullptr || c.buffer->bytes == 0; });
    std::sort(changed.begin(), changed.end(), [](const Changed& a, const Changed& b) {
      return std::pair(a.buffer->arena, a.buffer->offset) < std::pair(b.buffer->arena, b.buffer->offset);
    });
    const auto fault = [&](const Buffer& written, const Buffer& other) {
      Fault("writes", "writes " + Describe(written) + " over its own operand " + Describe(other));
    };
    for (size_t k = 1; k < changed.size(); ++k) {
      if (Overlap(*changed[k - 1].buffer, *changed[k].buffer)) return fault(*changed[k].buffer, *changed[k - 1].buffer);
    }
    for (size_t j = 0; j < reads_.size(); ++j) {
      if (reads_[j] == nullptr || reads_[j]->bytes == 0) continue;
      const Buffer& read = *reads_[j];
      const auto found = std::partition_point(changed.begin(), changed.end(), [&](const Changed& c) {
        return std::pair(c.buffer->arena, c.buffer->offset + c.buffer->bytes) <= std::pair(read.arena, read.offset);
      });
      if (found == changed.end() || !Overlap(*found->buffer, read)) continue;
      if (found->scratch || !SameRange(*found->buffer, read) || !MayAlias(found->position, j)) return fault(*found->buffer, read);
    }
  }

  const Scope& scope_;
  const int index_;
  const Instruction& instruction_;
  const std::vector<const Buffer*> reads_;
  const std::vector<const Buffer*> writes_;
  const std::vector<const Buffer*> scratch_;
  std::span<const Aliasing> may_alias_;
  FaultList& faults_;
};

}  // namespace

void CheckInstruction(const Scope& scope, int index, FaultList& faults) { InstructionCheck(scope, index, faults).Run(); }

}  // namespace gradloom::verify
