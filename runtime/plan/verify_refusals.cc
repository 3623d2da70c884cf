// Checks "order": which instructions may make a step fail because of its feeds, according to the checks in catalog rows and the operands in
// the plan.
#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "kernels/catalog/data_checks.h"
#include "runtime/plan/verify_scope.h"

namespace gradloom::verify {
namespace {

// The buffer that underlies another one, and its writer.
struct Origin {
  int buffer = -1;
  int writer = -1;
};

class ProgramChecks {
 public:
  ProgramChecks(const Plan& plan, const Program& program) : plan_(plan), program_(program), writers_(Writers(program)) {}

  // Calls f(check, origin) for each check of a launch whose operand is not a constant of the plan and is not known to pass.
  template <typename F>
  void ForEach(const Instruction& launch, F&& f) const {
    if (launch.kind != InstructionKind::kLaunch || !MayRefuseData(launch.domain, launch.op)) return;
    for (const DataCheck& check : DataChecksOf(CallOf(plan_, program_, launch))) {
      // Inputs come first.
      if (check.input >= launch.uses.size() || launch.uses[check.input].access != Access::kRead) continue;
      const int buffer = launch.uses[check.input].buffer;
      if (buffer < 0 || at(buffer).arena == Arena::kConstants) continue;
      const Origin origin = OriginOf(buffer);
      if (!Passes(check, origin)) f(check, origin.buffer);
    }
  }

  // A branch or loop may refuse in a body, or by exceeding its bound on iterations.
  bool DecisionMayRefuse(const Instruction& decision) const {
    if (decision.kind == InstructionKind::kLoop) {
      const int trips = decision.uses.at(0).buffer, condition = decision.uses.at(1).buffer;
      if (condition >= 0 || (trips >= 0 && at(trips).arena != Arena::kConstants)) return true;
    }
    return std::any_of(decision.bodies.begin(), decision.bodies.end(), [&](const Program& body) {
      const ProgramChecks inside(plan_, body);
      return std::any_of(body.instructions.begin(), body.instructions.end(), [&](const Instruction& instruction) {
        bool refuses = !instruction.bodies.empty() && inside.DecisionMayRefuse(instruction);
        inside.ForEach(instruction, [&](const DataCheck&, int) { refuses = true; });
        return refuses;
      });
    });
  }

 private:
  const Buffer& at(int buffer) const { return program_.buffers[static_cast<size_t>(buffer)]; }

  Origin OriginOf(int buffer) const {
    const int whole = at(buffer).whole < 0 ? buffer : at(buffer).whole;
    return {whole, writers_[static_cast<size_t>(whole)]};
  }

  bool Passes(const DataCheck& check, const Origin& origin) const {
    if (origin.writer < 0) return false;
    const Instruction& producer = program_.instructions[static_cast<size_t>(origin.writer)];
    if (producer.kind != InstructionKind::kLaunch) return false;
    size_t output = 0;
    for (const Use& use : producer.uses) {
      if (use.access != Access::kWrite) continue;
      if (use.buffer == origin.buffer) break;
      ++output;
    }
    return check.AcceptsIndicesBelow(IndicesBelow(CallOf(plan_, program_, producer), output));
  }

  const Plan& plan_;
  const Program& program_;
  const std::vector<int> writers_;
};

}  // namespace

std::vector<int> Refusals(const Plan& plan, const Program& program, const std::function<bool(int, int)>& before) {
  struct CheckedValue {
    DataCheck check;
    int instruction;
  };
  const ProgramChecks checks(plan, program);
  std::map<int, std::vector<CheckedValue>> first;  // by origin
  std::vector<int> refusing;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[static_cast<size_t>(i)];
    bool refuses = !instruction.bodies.empty() && checks.DecisionMayRefuse(instruction);
    checks.ForEach(instruction, [&](const DataCheck& check, int origin) {
      std::vector<CheckedValue>& earlier = first[origin];
      const bool known = std::any_of(earlier.begin(), earlier.end(), [&](const CheckedValue& checked) {
        return check.ImpliedBy(checked.check) && before(checked.instruction, i);
      });
      if (known) return;
      earlier.push_back({check, i});
      refuses = true;
    });
    if (refuses) refusing.push_back(i);
  }
  return refusing;
}

AcceptanceTracker::AcceptanceTracker(std::vector<const ProgramFacts*> facts)
    : facts_(std::move(facts)), now_(facts_.size(), RankSet((facts_.size() + 63) / 64, 0)), before_change_(now_) {}

void AcceptanceTracker::Exchange(const std::vector<Arrival>& together) {
  const auto join = [](RankSet& set, const RankSet& other) {
    for (size_t word = 0; word < set.size(); ++word) set[word] |= other[word];
  };
  RankSet sent((facts_.size() + 63) / 64, 0);
  for (const Arrival& arrival : together) {
    RankSet& known = now_[arrival.rank];
    // A rank that has reached a communication has done everything before it.
    if (arrival.operation >= facts_[arrival.rank]->accepted_at) known[arrival.rank / 64] |= uint64_t{1} << (arrival.rank % 64);
    if (arrival.sends) join(sent, known);
  }
  for (const Arrival& arrival : together) {
    RankSet& known = now_[arrival.rank];
    if (arrival.receives) join(known, sent);
    if (arrival.operation + 1 == facts_[arrival.rank]->changes_after) before_change_[arrival.rank] = known;
  }
}

bool AcceptanceTracker::ChangesTooEarly(size_t s, size_t r) const {
  const auto contains = [r](const RankSet& set) { return (set[r / 64] >> (r % 64) & 1) != 0; };
  return facts_[r]->may_refuse && contains(now_[s]) && !contains(before_change_[s]);
}

}  // namespace gradloom::verify
