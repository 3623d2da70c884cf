#include "runtime/plan/verify_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/plan/average_state.h"
#include "runtime/plan/device_spec.h"
#include "runtime/plan/text.h"
#include "runtime/plan/verify_scope.h"

namespace gradloom {
namespace verify {
namespace {

// Limit on tensors over all places.
constexpr size_t kMaxPlaced = size_t{1} << 26;

// One tensor of a table and its range in an arena.
struct Range {
  int64_t offset;
  int64_t bytes;
  const std::string* what;  // owned by the caller; a tensor has a range in every place, but one text
};

// Every range is aligned and within the arena, and no two overlap. After sorting by offset, overlaps occur between neighbours.
void CheckRanges(std::vector<Range> ranges, int64_t arena_bytes, const std::string& arena, FaultList& faults) {
  if (arena_bytes < 0 || arena_bytes > kMaxArenaBytes)
    faults.Add("bounds", arena, "the arena has " + std::to_string(arena_bytes) + " bytes");
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.offset < b.offset; });
  const Range* before = nullptr;
  for (const Range& range : ranges) {
    const auto end = CheckedAdd(range.offset, range.bytes);
    if (range.offset < 0 || range.bytes < 0 || !end || *end > arena_bytes) {
      faults.Add("bounds", *range.what,
                 std::to_string(range.bytes) + " bytes at " + std::to_string(range.offset) + " do not lie in the arena of " +
                     std::to_string(arena_bytes) + " bytes");
      continue;
    }
    if (range.offset % kAlignmentBytes != 0) {
      faults.Add("bounds", *range.what,
                 "offset " + std::to_string(range.offset) + " is not a multiple of " + std::to_string(kAlignmentBytes));
    }
    if (range.bytes == 0) continue;
    if (before != nullptr && before->offset + before->bytes > range.offset) {
      faults.Add("bounds", *range.what, "shares bytes with " + *before->what);
    }
    before = &range;
  }
}

// The places listed for a tensor are ascending and exist.
void CheckNames(const Plan& plan, const std::vector<int>& places, const std::string& what, FaultList& faults) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= 0 && places[i] < static_cast<int>(plan.places.size()) && (i == 0 || places[i - 1] < places[i])) continue;
    return faults.Add("names", what, "place " + std::to_string(places[i]) + " is out of range or order");
  }
}

// Adds the range to each place that holds the tensor.
void Spread(const std::vector<int>& places, const Range& range, std::vector<std::vector<Range>>& by_place) {
  if (places.empty()) {
    for (std::vector<Range>& place : by_place) place.push_back(range);
  }
  for (int place : places) {
    if (place >= 0 && place < static_cast<int>(by_place.size())) by_place[static_cast<size_t>(place)].push_back(range);
  }
}

std::string InPlace(const Plan& plan, size_t place) { return plan.places.size() == 1 ? "" : " of place " + std::to_string(place); }

// A state is where its parameter is. Those of the optimizer may be in some of these places only, which update the parameter for all.
bool MayBeWhere(const StateTensor& state, const StateTensor& parameter) {
  if (state.kind != StateKind::kOptimizer || state.places.empty()) return state.places == parameter.places;
  return std::all_of(state.places.begin(), state.places.end(), [&](int place) { return parameter.in_place(place); });
}

// A copy has a 16-bit type of its own, and is derived from the parameter alone.
void CheckCopy(const StateTensor& copy, const StateTensor& parameter, const std::string& what, FaultList& faults) {
  if (!Is16BitFloat(copy.dtype) || Is16BitFloat(parameter.dtype) || !IsFloating(parameter.dtype) || copy.shape != parameter.shape) {
    faults.Add("bounds", what, "cannot be '" + Escaped(parameter.name) + "' rounded to 16 bits");
  }
  if (copy.initial.defined()) faults.Add("names", what, "has a value of its own, but is a copy");
}

// Sessions and files find an average by its name.
void CheckAverage(const StateTensor& average, const StateTensor& parameter, const std::string& what, FaultList& faults) {
  if (average.dtype != parameter.dtype || average.shape != parameter.shape)
    faults.Add("bounds", what, "cannot be the average of '" + Escaped(parameter.name) + "', which has another type or shape");
  if (average.name != AverageOf(parameter.name))
    faults.Add(
        "names", what,
        "is the average of '" + Escaped(parameter.name) + "', but has another name than '" + Escaped(AverageOf(parameter.name)) + "'");
  if (average.initial.defined()) faults.Add("names", what, "has a value of its own, but begins as its parameter");
}

void CheckState(const Plan& plan, FaultList& faults) {
  std::vector<std::vector<Range>> ranges(plan.places.size());
  std::set<std::string> names;
  std::vector<std::string> texts;
  texts.reserve(plan.state.size());
  for (const StateTensor& state : plan.state) {
    const std::string& what = texts.emplace_back("state tensor '" + Escaped(state.name) + "'");
    CheckNames(plan, state.places, what, faults);
    Spread(state.places, {state.offset, state.bytes, &what}, ranges);
    if (!names.insert(state.name).second) faults.Add("names", what, "the name occurs twice");
    if (BytesOf(state.dtype, state.shape, state.layout) != state.bytes) {
      faults.Add("bounds", what, std::to_string(state.bytes) + " bytes do not match its type, shape and layout");
    }
    const bool summed = state.kind == StateKind::kAccumulator && (state.dtype == DType::kFloat32 || state.dtype == DType::kFloat64);
    if (state.partial && (!summed || state.initial.defined() || plan.accumulate < 2)) {
      faults.Add("names", what, "has a part on each rank; only gradient accumulators may, in a plan that counts the batches of an update");
    }
    if (state.initial.defined() && (state.initial.dtype() != state.dtype || state.initial.shape() != state.shape)) {
      faults.Add("bounds", what, "its initial value has another type or shape");
    }
    // The number of accumulated samples is the one accumulator of no parameter.
    const bool counts = state.kind == StateKind::kAccumulator && state.dtype == DType::kInt64 && state.shape.rank() == 0;
    const bool belongs = !counts && (state.kind == StateKind::kOptimizer || state.kind == StateKind::kAccumulator || state.follows());
    const bool in_range = state.parameter >= 0 && state.parameter < static_cast<int>(plan.state.size());
    if (belongs != in_range || (in_range && plan.state[static_cast<size_t>(state.parameter)].kind != StateKind::kParameter)) {
      faults.Add("names", what, "does not belong to a parameter as its kind requires");
    } else if (in_range && !MayBeWhere(state, plan.state[static_cast<size_t>(state.parameter)])) {
      faults.Add("names", what, "has other places than its parameter");
    } else if (state.kind == StateKind::kWeightCopy) {
      CheckCopy(state, plan.state[static_cast<size_t>(state.parameter)], what, faults);
    } else if (state.kind == StateKind::kAverage) {
      CheckAverage(state, plan.state[static_cast<size_t>(state.parameter)], what, faults);
    }
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    CheckRanges(std::move(ranges[i]), plan.places[i].state_bytes, "state" + InPlace(plan, i), faults);
  }
}

void CheckConstants(const Plan& plan, FaultList& faults) {
  std::vector<std::vector<Range>> ranges(plan.places.size());
  std::set<std::string> names;
  std::vector<std::string> texts;
  texts.reserve(plan.constants.size());
  for (const Constant& constant : plan.constants) {
    const std::string& what = texts.emplace_back("constant '" + Escaped(constant.name) + "'");
    if (!names.insert(constant.name).second) faults.Add("names", what, "the name occurs twice");
    if (!constant.value.defined()) faults.Add("bounds", what, "has no value");
    CheckNames(plan, constant.places, what, faults);
    Spread(constant.places, {constant.offset, constant.value.defined() ? constant.value.bytes() : 0, &what}, ranges);
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    CheckRanges(std::move(ranges[i]), plan.places[i].constants_bytes, "constants" + InPlace(plan, i), faults);
  }
}

void CheckStep(const StepLayout& step, FaultList& faults) {
  std::vector<Range> ranges;
  static const std::string kLr = "step parameter lr", kStep = "step parameter step", kBatch = "step parameter batch",
                           kSeed = "step parameter seed", kFirst = "step parameter first", kLr64 = "step parameter lr in float64";
  for (const Range& range : {Range{step.lr, 4, &kLr}, Range{step.step, 8, &kStep}, Range{step.batch, 8, &kBatch},
                             Range{step.seed, 8, &kSeed}, Range{step.first, 8, &kFirst}, Range{step.lr64, 8, &kLr64}}) {
    if (range.offset != -1) ranges.push_back(range);
  }
  CheckRanges(std::move(ranges), step.bytes, "step", faults);
}

void CheckGroups(const Plan& plan, FaultList& faults) {
  const int ranks = plan.entries.empty() ? 0 : static_cast<int>(plan.entries[0].ranks.size());
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const std::vector<int>& members = plan.groups[i].ranks;
    const std::string what = "group " + std::to_string(i);
    if (members.empty()) faults.Add("ranks", what, "has no members");
    // The runtime makes a group of ascending ranks, so that all processes of a job number its members alike.
    if (std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) != members.end())
      faults.Add("ranks", what, "its ranks are not in ascending order");
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

Tables::Tables(const Plan& plan, int place) {
  for (size_t i = 0; i < plan.state.size(); ++i) {
    if (plan.state[i].bytes > 0 && plan.state[i].in_place(place)) state.emplace(plan.state[i].offset, static_cast<int>(i));
  }
  for (size_t i = 0; i < plan.constants.size(); ++i) {
    const Tensor& value = plan.constants[i].value;
    if (value.defined() && value.bytes() > 0 && plan.constants[i].in_place(place))
      constants.emplace(plan.constants[i].offset, static_cast<int>(i));
  }
  step = {{plan.step.step, DType::kInt64},  {plan.step.batch, DType::kInt64}, {plan.step.seed, DType::kInt64},
          {plan.step.first, DType::kInt64}, {plan.step.lr, DType::kFloat32},  {plan.step.lr64, DType::kFloat64}};
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
  std::string text = "'" + Escaped(buffer.name) + "' (" + ArenaName(buffer.arena);
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
  if (plan.targets.empty()) faults.Add("names", "plan", "has no target");
  for (const Target& target : plan.targets) {
    if (target.threads < 1) faults.Add("names", "plan", "a target has " + std::to_string(target.threads) + " threads");
  }
  if (plan.accumulate < 1) faults.Add("names", "plan", "accumulates " + std::to_string(plan.accumulate) + " batches");
  if (!std::isfinite(plan.schedule.lr)) faults.Add("names", "plan", "the learning rate is not finite");
  if (plan.places.empty() || plan.places.size() > kMaxDevices ||
      plan.places.size() * (plan.state.size() + plan.constants.size() + 1) > kMaxPlaced) {
    return faults.Add("names", "plan", "has " + std::to_string(plan.places.size()) + " places");
  }
  for (size_t i = 0; i < plan.entries.size(); ++i) {
    const size_t ranks = plan.entries[i].ranks.size();
    if (ranks > kMaxDevices) faults.Add("ranks", "entry " + std::to_string(i), "has " + std::to_string(ranks) + " ranks");
  }
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    const int place = plan.programs[i].place;
    if (place >= 0 && place < static_cast<int>(plan.places.size())) continue;
    faults.Add("names", "program " + std::to_string(i),
               "place " + std::to_string(place) + " is out of range: the plan has " + std::to_string(plan.places.size()));
  }
  CheckState(plan, faults);
  CheckConstants(plan, faults);
  CheckStep(plan.step, faults);
  CheckGroups(plan, faults);
}

}  // namespace verify

namespace {

// By program: the buffers that fetches read after the program's end; nullopt if none of the entries from `first` on runs the program.
std::vector<std::optional<std::vector<int>>> FetchedBuffers(const Plan& plan, size_t first) {
  std::vector<std::optional<std::vector<int>>> fetched(plan.programs.size());
  std::set<int> run;
  for (size_t e = first; e < plan.entries.size(); ++e) {
    for (const RankBinding& rank : plan.entries[e].ranks) run.insert(rank.program);
  }
  for (size_t e = 0; e < plan.entries.size(); ++e) {
    const Entry& entry = plan.entries[e];
    std::set<std::pair<int, std::vector<int>>> seen;
    for (size_t r = 0; r < entry.ranks.size(); ++r) {
      const RankBinding& rank = entry.ranks[r];
      if (rank.program < 0 || rank.program >= static_cast<int>(plan.programs.size()) || !run.contains(rank.program)) continue;
      if (!seen.emplace(rank.program, rank.fetches).second) continue;
      std::optional<std::vector<int>>& buffers = fetched[static_cast<size_t>(rank.program)];
      if (!buffers) buffers.emplace();
      for (size_t f = 0; f < entry.fetches.size(); ++f) {
        const int buffer = FetchedBuffer(entry, r, f);
        if (buffer != -1) buffers->push_back(buffer);
      }
    }
  }
  return fetched;
}

}  // namespace

std::vector<PlanFault> Verify(const Plan& plan, KernelLookup find, const Plan* proved) {
  verify::FaultList faults;
  verify::CheckTables(plan, faults);
  if (faults.size() > 0) return faults.Take();

  if (proved != nullptr && !Extends(plan, *proved)) proved = nullptr;
  const size_t programs = proved == nullptr ? 0 : proved->programs.size();
  const size_t entries = proved == nullptr ? 0 : proved->entries.size();
  const std::vector<std::optional<std::vector<int>>> fetched = FetchedBuffers(plan, entries);
  std::vector<verify::Tables> tables;
  for (size_t place = 0; place < plan.places.size(); ++place) tables.emplace_back(plan, static_cast<int>(place));
  std::vector<verify::ProgramFacts> facts(plan.programs.size());
  for (size_t i = 0; i < plan.programs.size() && !faults.full(); ++i) {
    // A program that was already verified is checked again only if a new entry runs it, which may fetch other buffers of it.
    if (i < programs && !fetched[i]) continue;
    const Program& program = plan.programs[i];
    const verify::Scope scope{plan,
                              tables[static_cast<size_t>(program.place)],
                              find,
                              program,
                              "program " + std::to_string(i),
                              program.place,
                              program.transient_bytes,
                              program.input_bytes};
    verify::CheckProgram(scope, fetched[i].value_or(std::vector<int>()), faults, facts[i]);
  }
  for (size_t i = entries; i < plan.entries.size() && !faults.full(); ++i) verify::CheckEntry(plan, static_cast<int>(i), facts, faults);
  return faults.Take();
}

void VerifyOrThrow(const Plan& plan, KernelLookup find, const Plan* proved) {
  const std::vector<PlanFault> faults = Verify(plan, find, proved);
  if (faults.empty()) return;
  std::string message = "unsound plan (" + std::string(faults[0].check) + "): " + faults[0].message;
  if (faults.size() > 1) message += "; and " + std::to_string(faults.size() - 1) + " more faults";
  throw Error(ErrorCode::kPlan, message, faults[0].where,
              "compile the model again; if the new plan is rejected too, this is a bug in Gradloom");
}

}  // namespace gradloom
