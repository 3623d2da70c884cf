// Data that the steps of the verifier share. For verify_*.cc only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/plan/verify_plan.h"

namespace gradloom::verify {

inline constexpr size_t kMaxFaults = 100;
inline constexpr size_t kMaxStreams = 256;
inline constexpr int kMaxDepth = 16;                         // nesting of bodies
inline constexpr int64_t kMaxArenaBytes = int64_t{1} << 47;  // the address space of a process; sums of a few of these cannot overflow

class FaultList {
 public:
  void Add(std::string_view check, std::string where, std::string message);
  // Whether enough faults are known; further work would mostly repeat them.
  bool full() const { return faults_.size() >= kMaxFaults; }
  size_t size() const { return faults_.size(); }
  std::vector<PlanFault> Take() { return std::move(faults_); }

 private:
  std::vector<PlanFault> faults_;
};

// What the plan's tables place at which offset of one place's arenas, to compare with buffers. Tensors without bytes are left out.
struct Tables {
  Tables(const Plan& plan, int place);
  std::map<int64_t, int> state;      // offset -> index
  std::map<int64_t, int> constants;  // offset -> index
  std::map<int64_t, DType> step;     // offset -> dtype
};

// A program, or a body of an if or loop, with its surroundings.
struct Scope {
  const Plan& plan;
  const Tables& tables;
  KernelLookup find;
  const Program& program;
  std::string name;             // "program 0", "program 0, #7, body 1"
  int place = 0;                // of the outermost program, in range
  int64_t transient_bytes = 0;  // of the outermost program
  int64_t input_bytes = 0;      // of the outermost program
  const Program* outer = nullptr;
  const Instruction* owner = nullptr;  // the if or loop in `outer`, for a body
  int depth = 0;
};

// Facts about a sound program that the checks of entries use.
struct ProgramFacts {
  bool sound = false;
  std::vector<int> communication;                  // collectives, sends and receives in their order
  std::vector<std::pair<int, int>> state_writes;   // {state tensor, instruction}
  std::vector<std::pair<int, int>> partial_reads;  // {partial state, instruction that reads it, and no sum over ranks follows}
  bool may_refuse = false;                         // whether it may refuse a batch because of its data
  size_t accepted_at = 0;    // index of the first of `communication` that begins when nothing can refuse any more, or its size
  size_t changes_after = 0;  // number of `communication` that have ended before any state is written
};

// "#12 launch onednn.conv on stream 1 ('/conv1/Conv')"
std::string Describe(const Program& program, int instruction);
// "'x' (transient bytes 0 to 4096)"
std::string Describe(const Buffer& buffer);
std::string Where(const Scope& scope, int instruction);

// Bytes of dtype, shape and layout in checked arithmetic; nullopt if any of them is invalid.
std::optional<int64_t> BytesOf(DType dtype, const Shape& shape, const Layout& layout);

inline bool Overlap(const Buffer& a, const Buffer& b) {
  return a.arena == b.arena && a.feed == b.feed && a.bytes > 0 && b.bytes > 0 && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}
inline bool SameRange(const Buffer& a, const Buffer& b) {
  return a.arena == b.arena && a.feed == b.feed && a.offset == b.offset && a.bytes == b.bytes;
}
// Whether `a` has the same value type at the same place as `b`.
inline bool SamePlace(const Buffer& a, const Buffer& b) { return SameRange(a, b) && a.operand() == b.operand(); }
// Whether equal bytes in both are equal elements in row-major order.
bool HoldTheSame(const Buffer& a, const Buffer& b);

// Whether the operator arranges the elements of its input in another layout.
inline bool IsReorder(std::string_view domain, std::string_view op) { return domain == "gradloom" && op == "Reorder"; }

// Whether it is a collective that sums over ranks.
inline bool Sums(const Instruction& instruction) {
  return instruction.kind == InstructionKind::kCollective &&
         (instruction.collective == Collective::kAllReduceSum || instruction.collective == Collective::kReduceScatterSum ||
          instruction.collective == Collective::kReduceSum);
}

// By buffer: the instruction that writes it as a value (not as scratch), or -1.
std::vector<int> Writers(const Program& program);

// Checks names, bounds and writes in a program and its bodies. `fetched`: buffers read after its end.
void CheckProgram(const Scope& scope, const std::vector<int>& fetched, FaultList& faults, ProgramFacts& facts);
// Checks the operands and kernel of one instruction. Ids must be in range and buffers checked.
void CheckInstruction(const Scope& scope, int index, FaultList& faults);
// Instructions that may be the first to refuse the data of a batch (kernels/catalog/data_checks.h), ascending. before(a, b): whether a has
// ended when b begins. Throws Error for an attribute whose type differs from its operator's.
std::vector<int> Refusals(const Plan& plan, const Program& program, const std::function<bool(int, int)>& before);
// Tracks, from collective to collective, which ranks know of each other that they refuse nothing any more.
class AcceptanceTracker {
 public:
  // By rank, borrowed.
  explicit AcceptanceTracker(std::vector<const ProgramFacts*> facts);

  // A rank that takes part in a collective. `operation`: how many it had before.
  struct Arrival {
    size_t rank, operation;
    bool sends, receives;
  };
  void Exchange(const std::vector<Arrival>& together);

  // Whether rank `s` changes a state before it knows that `r` refuses nothing any more, although it learns so later.
  bool ChangesTooEarly(size_t s, size_t r) const;

 private:
  // A bit for each rank: in a job of many ranks, each collective joins the sets of all of its members.
  using RankSet = std::vector<uint64_t>;

  std::vector<const ProgramFacts*> facts_;
  std::vector<RankSet> now_, before_change_;  // by rank: the ranks that it knows of
};

// Checks order and values in a program whose ids and bounds are sound.
void CheckOrder(const Scope& scope, const std::vector<int>& fetched, FaultList& faults, ProgramFacts& facts);
// Checks that parameters and their 16-bit copies change together. The facts must include the writes of states.
void CheckCopies(const Scope& scope, const ProgramFacts& facts, FaultList& faults);
// Checks the tables of the plan: targets, state, constants, step, groups.
void CheckTables(const Plan& plan, FaultList& faults);
// An entry, for the checks of its ranks.
class EntryRanks {
 public:
  // All borrowed; `facts` by program.
  EntryRanks(const Plan& plan, int entry, const std::vector<ProgramFacts>& facts, FaultList& faults);

 protected:
  const Program& program(size_t rank) const { return plan_.programs[static_cast<size_t>(entry_.ranks[rank].program)]; }
  const ProgramFacts& facts(size_t rank) const { return facts_[static_cast<size_t>(entry_.ranks[rank].program)]; }
  std::string Rank(size_t rank) const { return name_ + ", rank " + std::to_string(rank); }

  const Plan& plan_;
  const Entry& entry_;
  const std::string name_;
  const std::vector<ProgramFacts>& facts_;
  FaultList& faults_;
};

// A send and its receive: ranks, and the instructions in their programs.
struct Transfer {
  size_t sender, receiver;
  int send, recv;
};
// Checks "ranks": those that hold a state give it the same next value. `transfers`: all of the entry, in which all communication is
// matched.
void CheckSharing(const EntryRanks& ranks, const std::vector<Transfer>& transfers);
// Checks "ranks": all take part in the same collectives. The ranks' programs must be sound.
void CheckCommunication(const EntryRanks& ranks);
// Checks "ranks": an entry over its programs.
void CheckEntry(const Plan& plan, int entry, const std::vector<ProgramFacts>& facts, FaultList& faults);

}  // namespace gradloom::verify
