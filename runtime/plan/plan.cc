#include "runtime/plan/plan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace gradloom {

namespace {

bool Holds(const std::vector<int>& places, int place) {
  return places.empty() || std::find(places.begin(), places.end(), place) != places.end();
}

}  // namespace

Program& ProgramList::Mutable(size_t i) {
  if (programs_[i].use_count() > 1) programs_[i] = std::make_shared<Program>(*programs_[i]);
  return *programs_[i];
}

bool StateTensor::in_place(int place) const { return Holds(places, place); }
bool Constant::in_place(int place) const { return Holds(places, place); }

int Plan::PlaceOf(size_t rank) const {
  if (entries.empty()) return 0;
  return programs[static_cast<size_t>(entries.front().ranks[rank].program)].place;
}

int Plan::FindEntry(EntryKind kind, int64_t batch) const {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].kind == kind && entries[i].batch == batch) return static_cast<int>(i);
  }
  return -1;
}

bool Plan::HasEntry(EntryKind kind) const {
  return std::any_of(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.kind == kind; });
}

int Plan::FindState(const std::string& name) const {
  for (size_t i = 0; i < state.size(); ++i) {
    if (state[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::set<int> CopyOfModel(const Entry& entry) {
  std::set<int> copy{0};
  for (std::vector<int> open{0}; !open.empty();) {
    const int at = open.back();
    open.pop_back();
    for (int peer : entry.ranks[static_cast<size_t>(at)].peers) {
      if (peer >= 0 && copy.insert(peer).second) open.push_back(peer);
    }
  }
  return copy;
}

bool Plan::HasPartialState() const {
  return std::any_of(state.begin(), state.end(), [](const StateTensor& tensor) { return tensor.partial; });
}

namespace {

// Ignores the initial value, which is not needed once the state has it.
bool SameState(const StateTensor& a, const StateTensor& b) {
  return a.name == b.name && a.kind == b.kind && a.dtype == b.dtype && a.shape == b.shape && a.layout == b.layout && a.offset == b.offset &&
         a.bytes == b.bytes && a.parameter == b.parameter && a.places == b.places && a.partial == b.partial;
}

bool SameConstant(const Constant& a, const Constant& b) {
  return a.name == b.name && a.offset == b.offset && a.places == b.places && a.value.dtype() == b.value.dtype() &&
         a.value.shape() == b.value.shape() && a.value.data() == b.value.data();
}

bool SameObject(const Program& a, const Program& b) { return &a == &b; }

bool IsAtLeastAsLarge(const Place& a, const Place& b) { return a.state_bytes >= b.state_bytes && a.constants_bytes >= b.constants_bytes; }

// Whether the list begins with `base`.
template <typename List, typename Same>
bool BeginsWith(const List& list, const List& base, const Same& same) {
  if (list.size() < base.size()) return false;
  for (size_t i = 0; i < base.size(); ++i) {
    if (!same(list[i], base[i])) return false;
  }
  return true;
}

}  // namespace

bool KeepsState(const Plan& plan, const Plan& base) {
  if (plan.num_ranks() != base.num_ranks() || plan.places.size() != base.places.size()) return false;
  for (size_t rank = 0; rank < base.num_ranks(); ++rank) {
    if (plan.PlaceOf(rank) != base.PlaceOf(rank)) return false;
  }
  return BeginsWith(plan.state, base.state, SameState);
}

bool Extends(const Plan& plan, const Plan& base) {
  for (size_t i = base.constants.size(); i < plan.constants.size(); ++i) {
    for (size_t place = 0; place < base.places.size(); ++place) {
      if (plan.constants[i].in_place(static_cast<int>(place)) && plan.constants[i].offset < base.places[place].constants_bytes)
        return false;
    }
  }
  return plan.targets == base.targets && plan.step == base.step && plan.accumulate == base.accumulate &&
         plan.places.size() == base.places.size() && BeginsWith(plan.places, base.places, IsAtLeastAsLarge) &&
         BeginsWith(plan.groups, base.groups, std::equal_to<>()) && BeginsWith(plan.state, base.state, SameState) &&
         BeginsWith(plan.constants, base.constants, SameConstant) && BeginsWith(plan.programs, base.programs, SameObject) &&
         BeginsWith(plan.entries, base.entries, std::equal_to<>());
}

bool IsOnlyExtent(const Entry& entry, size_t fetch) {
  for (const Fetch& other : entry.fetches) {
    for (const FetchExtent& extent : other.extents) {
      if (extent.fetch == static_cast<int>(fetch)) return true;
    }
  }
  return false;
}

int FetchedBuffer(const Entry& entry, size_t rank, size_t fetch) {
  const RankBinding& binding = entry.ranks[rank];
  if (rank > 0 && !binding.fetches.empty()) return fetch < binding.fetches.size() ? binding.fetches[fetch] : -1;
  return binding.program == entry.ranks[0].program ? entry.fetches[fetch].buffer : -1;
}

std::optional<SampleStride> SamplesIn(const Shape& shape, int axis, int64_t inner, int64_t samples) {
  if (axis < 0 || axis >= shape.rank() || samples <= 0 || inner < 0) return std::nullopt;
  if (inner == 0) inner = shape[axis] / samples;
  const auto block = CheckedMul(samples, inner);
  if (!block || *block == 0 || shape[axis] % *block != 0) return std::nullopt;
  SampleStride stride{shape[axis] / *block, inner};
  for (int i = 0; i < shape.rank(); ++i) (i < axis ? stride.outer : stride.together) *= i == axis ? 1 : shape[i];
  return stride;
}

std::vector<std::vector<int>> IndependentRanks(const Plan& plan) {
  const size_t count = plan.num_ranks();
  std::vector<int> leader(count);
  std::iota(leader.begin(), leader.end(), 0);
  const auto find = [&](int rank) {
    while (leader[static_cast<size_t>(rank)] != rank)
      rank = leader[static_cast<size_t>(rank)] = leader[static_cast<size_t>(leader[static_cast<size_t>(rank)])];
    return rank;
  };
  const auto join = [&](int a, int b) { leader[static_cast<size_t>(std::max(find(a), find(b)))] = std::min(find(a), find(b)); };
  std::vector<std::pair<std::set<int>, std::set<int>>> slots(plan.programs.size());  // the groups and peers that each program uses
  for (size_t p = 0; p < plan.programs.size(); ++p) {
    for (const Instruction& i : plan.programs[p].instructions) {
      if (i.kind == InstructionKind::kCollective) slots[p].first.insert(i.group);
      if (i.kind == InstructionKind::kSend || i.kind == InstructionKind::kRecv) slots[p].second.insert(i.peer);
    }
  }
  for (const Entry& entry : plan.entries) {
    for (size_t r = 0; r < entry.ranks.size(); ++r) {
      const RankBinding& rank = entry.ranks[r];
      const auto& [groups, peers] = slots[static_cast<size_t>(rank.program)];
      for (int slot : groups)
        join(static_cast<int>(r), plan.groups[static_cast<size_t>(rank.groups[static_cast<size_t>(slot)])].ranks.front());
      for (int slot : peers) join(static_cast<int>(r), rank.peers[static_cast<size_t>(slot)]);
    }
  }
  for (const StateTensor& state : plan.state) {
    int first = -1;
    for (size_t r = 0; r < count; ++r) {
      if (!state.in_place(plan.PlaceOf(r))) continue;
      if (first >= 0) join(first, static_cast<int>(r));
      if (first < 0) first = static_cast<int>(r);
    }
  }
  std::map<int, std::vector<int>> groups;
  for (size_t r = 0; r < count; ++r) groups[find(static_cast<int>(r))].push_back(static_cast<int>(r));
  std::vector<std::vector<int>> result;
  for (auto& [first, ranks] : groups) result.push_back(std::move(ranks));
  return result;
}

std::string_view CollectiveName(Collective collective) {
  switch (collective) {
    case Collective::kAllReduceSum: return "all-reduce";
    case Collective::kBroadcast: return "broadcast";
    case Collective::kReduceScatterSum: return "reduce-scatter";
    case Collective::kAllGather: return "all-gather";
    case Collective::kReduceSum: return "reduce";
  }
  return "";
}

std::string_view PhaseName(PlanPhase phase) {
  switch (phase) {
    case PlanPhase::kNone: return "";
    case PlanPhase::kForward: return "forward";
    case PlanPhase::kBackward: return "backward";
    case PlanPhase::kUpdate: return "update";
  }
  return "";
}

bool Communicates(const Instruction& instruction) {
  return instruction.kind == InstructionKind::kCollective || instruction.kind == InstructionKind::kSend ||
         instruction.kind == InstructionKind::kRecv;
}

bool WritesState(const Program& program, const Instruction& instruction) {
  return std::any_of(instruction.uses.begin(), instruction.uses.end(), [&](const Use& use) {
    return use.access == Access::kWrite && use.buffer >= 0 && program.buffers[static_cast<size_t>(use.buffer)].arena == Arena::kState;
  });
}

namespace {

// The constant that a buffer refers to, if its integers affect what a kernel does; undefined otherwise.
TensorView KnownValue(const Plan& plan, const Program& program, const Buffer& buffer) {
  if (buffer.arena != Arena::kConstants || !IsKnownConstant(buffer.dtype, buffer.shape.elements())) return {};
  for (const Constant& constant : plan.constants) {
    if (constant.offset == buffer.offset && constant.in_place(program.place) && constant.value.dtype() == buffer.dtype &&
        constant.value.shape() == buffer.shape) {
      return constant.value.view();
    }
  }
  return {};
}

}  // namespace

KernelCall CallOf(const Plan& plan, const Program& program, const Instruction& instruction) {
  KernelCall call{.op = instruction.op, .domain = instruction.domain, .attributes = instruction.attributes, .inputs = {}, .outputs = {}};
  if (instruction.stream < 0 || instruction.stream >= static_cast<int>(program.streams.size())) {
    throw Error(ErrorCode::kPlan, "stream " + std::to_string(instruction.stream) + " is out of range", Escaped(instruction.origin));
  }
  const Stream& stream = program.streams[static_cast<size_t>(instruction.stream)];
  call.threads = stream.threads;
  const bool on_cuda = stream.device >= 0 && stream.device < static_cast<int>(plan.targets.size()) &&
                       plan.targets[static_cast<size_t>(stream.device)].device == DeviceKind::kCuda;
  for (const Use& use : instruction.uses) {
    if (use.buffer < -1 || use.buffer >= static_cast<int>(program.buffers.size())) {
      throw Error(ErrorCode::kPlan, "buffer " + std::to_string(use.buffer) + " is out of range", Escaped(instruction.origin));
    }
    if (use.access == Access::kScratch) continue;
    OperandType operand;
    const Buffer* const buffer = use.buffer < 0 ? nullptr : &program.buffers[static_cast<size_t>(use.buffer)];
    if (buffer != nullptr) operand = buffer->operand();
    if (on_cuda && use.access == Access::kRead)
      call.values.push_back(buffer == nullptr ? TensorView() : KnownValue(plan, program, *buffer));
    (use.access == Access::kRead ? call.inputs : call.outputs).push_back(std::move(operand));
  }
  return call;
}

}  // namespace gradloom
