#include "runtime/plan/verify_plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/plan/verify_scope.h"

namespace gradloom {
namespace verify {
namespace {

constexpr std::string_view kArenaNames[] = {"state", "constants", "transient", "step", "feed"};

// One tensor of a table: its place in an arena of `arena_bytes`.
struct Place {
  int64_t offset;
  int64_t bytes;
  std::string what;
};

// Every place is aligned and in the arena, and no two overlap. Sorted by offset, overlap shows in neighbours.
void CheckPlaces(std::vector<Place> places, int64_t arena_bytes, const std::string& arena, FaultList& faults) {
  if (arena_bytes < 0) faults.Add("bounds", arena, "the arena has " + std::to_string(arena_bytes) + " bytes");
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.offset < b.offset; });
  const Place* before = nullptr;
  for (const Place& place : places) {
    const auto end = CheckedAdd(place.offset, place.bytes);
    if (place.offset < 0 || place.bytes < 0 || !end || *end > arena_bytes) {
      faults.Add("bounds", place.what,
                 std::to_string(place.bytes) + " bytes at " + std::to_string(place.offset) + " do not lie in the arena of " +
                     std::to_string(arena_bytes) + " bytes");
      continue;
    }
    if (place.offset % kAlignmentBytes != 0) {
      faults.Add("bounds", place.what, "offset " + std::to_string(place.offset) + " is no multiple of " + std::to_string(kAlignmentBytes));
    }
    if (place.bytes == 0) continue;
    if (before != nullptr && before->offset + before->bytes > place.offset) {
      faults.Add("bounds", place.what, "shares bytes with " + before->what);
    }
    before = &place;
  }
}

void CheckState(const Plan& plan, FaultList& faults) {
  std::vector<Place> places;
  std::set<std::string> names;
  for (const StateTensor& state : plan.state) {
    const std::string what = "state tensor '" + Escaped(state.name) + "'";
    places.push_back({state.offset, state.bytes, what});
    if (!names.insert(state.name).second) faults.Add("names", what, "the name is there twice");
    if (BytesOf(state.dtype, state.shape, state.layout) != state.bytes) {
      faults.Add("bounds", what, std::to_string(state.bytes) + " bytes are not those of its type, shape and layout");
    }
    if (state.initial.defined() && (state.initial.dtype() != state.dtype || state.initial.shape() != state.shape)) {
      faults.Add("bounds", what, "its initial value has another type or shape");
    }
    const bool belongs = state.kind == StateKind::kOptimizer || state.kind == StateKind::kAccumulator;
    const bool in_range = state.parameter >= 0 && state.parameter < static_cast<int>(plan.state.size());
    if (belongs != in_range || (in_range && plan.state[static_cast<size_t>(state.parameter)].kind != StateKind::kParameter)) {
      faults.Add("names", what, "does not belong to a parameter as its kind says");
    }
  }
  CheckPlaces(std::move(places), plan.state_bytes, "state", faults);
}

void CheckConstants(const Plan& plan, FaultList& faults) {
  std::vector<Place> places;
  std::set<std::string> names;
  for (const Constant& constant : plan.constants) {
    const std::string what = "constant '" + Escaped(constant.name) + "'";
    if (!names.insert(constant.name).second) faults.Add("names", what, "the name is there twice");
    if (!constant.value.defined()) faults.Add("bounds", what, "has no value");
    places.push_back({constant.offset, constant.value.defined() ? constant.value.bytes() : 0, what});
  }
  CheckPlaces(std::move(places), plan.constants_bytes, "constants", faults);
}

void CheckStep(const StepLayout& step, FaultList& faults) {
  std::vector<Place> places;
  for (const auto& [offset, bytes, what] :
       {Place{step.lr, 4, "step parameter lr"}, Place{step.step, 8, "step parameter step"}, Place{step.batch, 8, "step parameter batch"},
        Place{step.seed, 8, "step parameter seed"}, Place{step.first, 8, "step parameter first"}}) {
    if (offset != -1) places.push_back({offset, bytes, what});
  }
  CheckPlaces(std::move(places), step.bytes, "step", faults);
}

void CheckGroups(const Plan& plan, FaultList& faults) {
  const int ranks = plan.entries.empty() ? 0 : static_cast<int>(plan.entries[0].ranks.size());
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const std::vector<int>& members = plan.groups[i].ranks;
    const std::string what = "group " + std::to_string(i);
    if (members.empty()) faults.Add("ranks", what, "has no members");
    if (std::set<int>(members.begin(), members.end()).size() != members.size()) faults.Add("ranks", what, "has a rank twice");
    for (int rank : members) {
      if (rank < 0 || rank >= ranks)
        faults.Add("ranks", what, "rank " + std::to_string(rank) + " is out of range: the plan has " + std::to_string(ranks));
    }
  }
}

}  // namespace

void FaultList::Add(std::string_view check, std::string where, std::string message) {
  if (!full()) faults_.push_back({check, std::move(message), std::move(where)});
}

Tables::Tables(const Plan& plan) {
  for (size_t i = 0; i < plan.state.size(); ++i) {
    if (plan.state[i].bytes > 0) state.emplace(plan.state[i].offset, static_cast<int>(i));
  }
  for (size_t i = 0; i < plan.constants.size(); ++i) {
    const Tensor& value = plan.constants[i].value;
    if (value.defined() && value.bytes() > 0) constants.emplace(plan.constants[i].offset, static_cast<int>(i));
  }
  step = {{plan.step.step, DType::kInt64},
          {plan.step.batch, DType::kInt64},
          {plan.step.seed, DType::kInt64},
          {plan.step.first, DType::kInt64},
          {plan.step.lr, DType::kFloat32}};
  step.erase(-1);
}

std::string Describe(const Program& program, int index) {
  static constexpr std::string_view kKinds[] = {"launch", "copy", "record", "wait", "collective", "send", "recv", "if", "loop"};
  const Instruction& instruction = program.instructions[static_cast<size_t>(index)];
  std::string text = "#" + std::to_string(index) + " " + std::string(kKinds[static_cast<size_t>(instruction.kind)]);
  if (instruction.kind == InstructionKind::kLaunch) text += " " + Escaped(instruction.kernel);
  if (instruction.event >= 0) text += " event " + std::to_string(instruction.event);
  text += " on stream " + std::to_string(instruction.stream);
  if (!instruction.origin.empty()) text += " ('" + Escaped(instruction.origin) + "')";
  return text;
}

std::string Describe(const Buffer& buffer) {
  std::string text = "'" + Escaped(buffer.name) + "' (" + std::string(kArenaNames[static_cast<size_t>(buffer.arena)]);
  if (buffer.arena == Arena::kFeed) return text + " " + std::to_string(buffer.feed) + ")";
  return text + " bytes " + std::to_string(buffer.offset) + " to " + std::to_string(buffer.offset + buffer.bytes) + ")";
}

std::string Where(const Scope& scope, int instruction) { return scope.name + ", " + Describe(scope.program, instruction); }

std::optional<int64_t> BytesOf(DType dtype, const Shape& shape, const Layout& layout) {
  if (DTypeBytes(dtype) == 0 || shape.rank() > kMaxRank) return std::nullopt;
  const size_t rank = static_cast<size_t>(shape.rank());
  if (!layout.order.empty()) {
    std::vector<bool> seen(rank);
    if (layout.order.size() != rank) return std::nullopt;
    for (int dim : layout.order) {
      if (dim < 0 || dim >= shape.rank() || seen[static_cast<size_t>(dim)]) return std::nullopt;
      seen[static_cast<size_t>(dim)] = true;
    }
  }
  std::vector<int64_t> block(rank, 1);
  for (const Layout::Block& b : layout.blocks) {
    if (b.dim < 0 || b.dim >= shape.rank() || b.size < 1) return std::nullopt;
    const auto size = CheckedMul(block[static_cast<size_t>(b.dim)], b.size);
    if (!size) return std::nullopt;
    block[static_cast<size_t>(b.dim)] = *size;
  }
  std::optional<int64_t> bytes = DTypeBytes(dtype);
  for (size_t dim = 0; dim < rank && bytes; ++dim) {
    const int64_t extent = shape[static_cast<int>(dim)];
    if (extent < 0) return std::nullopt;
    const auto blocks = CheckedAdd(extent, block[dim] - 1);
    const auto padded = blocks ? CheckedMul(*blocks / block[dim], block[dim]) : std::nullopt;
    bytes = padded ? CheckedMul(*bytes, *padded) : std::nullopt;
  }
  return bytes;
}

std::vector<int> Writers(const Program& program) {
  std::vector<int> writers(program.buffers.size(), -1);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (const Use& use : program.instructions[i].uses) {
      if (use.access == Access::kWrite && use.buffer >= 0) writers[static_cast<size_t>(use.buffer)] = static_cast<int>(i);
    }
  }
  return writers;
}

void CheckTables(const Plan& plan, FaultList& faults) {
  if (plan.targets.empty()) faults.Add("names", "plan", "names no target");
  for (const Target& target : plan.targets) {
    if (target.threads < 1) faults.Add("names", "plan", "a target has " + std::to_string(target.threads) + " threads");
  }
  if (plan.accumulate < 1) faults.Add("names", "plan", "accumulates " + std::to_string(plan.accumulate) + " batches");
  if (!std::isfinite(plan.schedule.lr)) faults.Add("names", "plan", "the learning rate is not finite");
  CheckState(plan, faults);
  CheckConstants(plan, faults);
  CheckStep(plan.step, faults);
  CheckGroups(plan, faults);
}

}  // namespace verify

std::vector<PlanFault> Verify(const Plan& plan, KernelLookup find) {
  verify::FaultList faults;
  verify::CheckTables(plan, faults);
  if (faults.size() > 0) return faults.Take();

  // A fetch reads a buffer of each rank's program after its end.
  std::vector<std::vector<int>> fetched(plan.programs.size());
  for (const Entry& entry : plan.entries) {
    std::set<std::pair<int, std::vector<int>>> seen;
    for (size_t r = 0; r < entry.ranks.size(); ++r) {
      const RankBinding& rank = entry.ranks[r];
      if (rank.program < 0 || rank.program >= static_cast<int>(plan.programs.size())) continue;
      if (!seen.emplace(rank.program, rank.fetches).second) continue;
      for (size_t f = 0; f < entry.fetches.size(); ++f) {
        const int buffer = FetchedBuffer(entry, r, f);
        if (buffer >= 0 || r == 0) fetched[static_cast<size_t>(rank.program)].push_back(buffer);
      }
    }
  }
  const verify::Tables tables(plan);
  std::vector<verify::ProgramFacts> facts(plan.programs.size());
  for (size_t i = 0; i < plan.programs.size() && !faults.full(); ++i) {
    const verify::Scope scope{plan, tables, find, plan.programs[i], "program " + std::to_string(i), plan.programs[i].transient_bytes};
    verify::CheckProgram(scope, fetched[i], faults, facts[i]);
  }
  for (size_t i = 0; i < plan.entries.size() && !faults.full(); ++i) verify::CheckEntry(plan, static_cast<int>(i), facts, faults);
  return faults.Take();
}

void VerifyOrThrow(const Plan& plan, KernelLookup find) {
  const std::vector<PlanFault> faults = Verify(plan, find);
  if (faults.empty()) return;
  std::string message = "unsound plan (" + std::string(faults[0].check) + "): " + faults[0].message;
  if (faults.size() > 1) message += "; and " + std::to_string(faults.size() - 1) + " more faults";
  throw Error(ErrorCode::kPlan, message, faults[0].where,
              "compile the model again; a plan of a fresh compile that is refused is a bug of Gradloom");
}

}  // namespace gradloom
