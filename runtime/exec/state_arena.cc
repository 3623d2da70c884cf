#include "runtime/exec/state_arena.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/base/pages.h"
#include "runtime/base/run_on_threads.h"

namespace gradloom {
namespace {

// The size that is worth a system call.
constexpr int64_t kPopulatedBytes = 64 << 10;

}  // namespace

void AddTo(Tensor& sum, const TensorView& part) {
  GRADLOOM_CHECK(sum.dtype() == part.dtype && sum.shape() == part.shape);
  const auto add = [&](auto elements) {
    using T = typename decltype(elements)::value_type;
    const T* const from = static_cast<const T*>(part.data);
    for (size_t i = 0; i < elements.size(); ++i) elements[i] += from[i];
  };
  if (sum.dtype() == DType::kFloat64) return add(sum.as<double>());
  GRADLOOM_CHECK(sum.dtype() == DType::kFloat32);
  add(sum.as<float>());
}

StateArena::StateArena(const Plan& plan, const AllocateArena& take, RankRange own) {
  for (size_t rank = 0; rank < plan.num_ranks(); ++rank) {
    places_.push_back(plan.PlaceOf(rank));
    const bool mine = own.contains(static_cast<int>(rank));
    memory_.push_back(mine ? take(rank, plan.places[static_cast<size_t>(places_.back())].state_bytes) : nullptr);
  }
  for (const StateTensor& state : plan.state) {
    if (state.kind == StateKind::kWeightCopy) copies_.emplace(plan.state[static_cast<size_t>(state.parameter)].name, state);
  }
  SetInitial(plan);
}

// In host memory on all cores, each tensor directly in its place: weights are as large as models.
void StateArena::SetInitial(const Plan& plan) {
  std::vector<const StateTensor*> given;
  for (const StateTensor& state : plan.state) {
    if (state.initial.defined()) given.push_back(&state);
  }
  std::multimap<std::string, StateTensor> averages;  // by parameter
  for (const StateTensor& state : plan.state) {
    if (state.kind == StateKind::kAverage) averages.emplace(plan.state[static_cast<size_t>(state.parameter)].name, state);
  }
  const bool direct = std::all_of(memory_.begin(), memory_.end(), [](const auto& arena) { return !arena || arena->own_host_memory(); });
  if (!direct) {
    for (const StateTensor* state : given) {
      Set(*state, state->initial.view());
      const auto [begin, end] = averages.equal_range(state->name);
      for (auto average = begin; average != end; ++average) Set(average->second, state->initial.view());
    }
    return;
  }
  RunOnThreads(static_cast<int64_t>(given.size()), NumCores(), [&](int64_t i) {
    const StateTensor& state = *given[static_cast<size_t>(i)];
    const auto place = [&](const StateTensor& tensor, const void* value) {
      const std::byte* first = nullptr;
      for (size_t rank = 0; rank < ranks(); ++rank) {
        if (!holds(rank, tensor)) continue;
        std::byte* const to = memory_[rank]->at(tensor.offset);
        if (tensor.bytes >= kPopulatedBytes) PopulatePages(to, tensor.bytes);
        if (first == nullptr) {
          ToLayout(tensor.layout, tensor.shape, DTypeBytes(tensor.dtype), value, to);
          first = to;
        } else if (tensor.bytes > 0) {
          std::memcpy(to, first, static_cast<size_t>(tensor.bytes));
        }
      }
    };
    place(state, state.initial.data());
    const auto [begin, end] = copies_.equal_range(state.name);
    for (auto copy = begin; copy != end; ++copy) place(copy->second, Converted(state.initial.view(), copy->second.dtype).data());
    const auto [first_average, past] = averages.equal_range(state.name);
    for (auto average = first_average; average != past; ++average) place(average->second, state.initial.data());
  });
}

void StateArena::Populate() const {
  for (const auto& arena : memory_) {
    if (arena != nullptr) arena->Populate();
  }
}

bool StateArena::written_by_others() const {
  return std::any_of(memory_.begin(), memory_.end(), [](const auto& arena) { return arena != nullptr && arena->written_by_others(); });
}

size_t StateArena::HolderOf(const StateTensor& state) const {
  size_t holder = 0;
  while (holder < ranks() && !holds(holder, state)) ++holder;
  return holder;
}

Tensor StateArena::Get(const StateTensor& state) const {
  const size_t holder = HolderOf(state);
  if (holder == ranks()) throw Error(ErrorCode::kPlan, "no device of this process holds '" + Escaped(state.name) + "'");
  Tensor value = GetOf(holder, state);
  // In the order of the ranks, so that the result does not depend on the processes that hold them.
  for (size_t rank = holder + 1; state.partial && rank < ranks(); ++rank) {
    if (holds(rank, state)) AddTo(value, GetOf(rank, state).view());
  }
  return value;
}

Tensor StateArena::GetOf(size_t rank, const StateTensor& state) const {
  const ArenaMemory& memory = *memory_[rank];
  Tensor value(state.dtype, state.shape);
  if (state.layout.plain()) {
    memory.Read(state.offset, value.bytes(), value.data());
  } else {
    std::vector<std::byte> stored(static_cast<size_t>(state.bytes));
    memory.Read(state.offset, state.bytes, stored.data());
    FromLayout(state.layout, state.shape, DTypeBytes(state.dtype), stored.data(), value.data());
  }
  return value;
}

void StateArena::Set(const StateTensor& state, const TensorView& value) {
  if (value.dtype != state.dtype || value.shape != state.shape) {
    throw Error(ErrorCode::kShape, "'" + Escaped(state.name) + "' must be " + std::string(DTypeName(state.dtype)) + state.shape.ToString() +
                                       ", got " + std::string(DTypeName(value.dtype)) + value.shape.ToString());
  }
  NoteChange();
  Write(state, value);
  const auto [begin, end] = copies_.equal_range(state.name);
  for (auto copy = begin; copy != end; ++copy) Write(copy->second, Converted(value, copy->second.dtype).view());
}

void StateArena::Write(const StateTensor& state, const TensorView& value) {
  std::vector<std::byte> stored;
  if (!state.layout.plain()) {
    stored.resize(static_cast<size_t>(state.bytes));
    ToLayout(state.layout, state.shape, DTypeBytes(state.dtype), value.data, stored.data());
  }
  const void* const from = stored.empty() ? value.data : stored.data();
  const auto bytes = stored.empty() ? value.bytes() : state.bytes;
  std::vector<std::byte> zeros(state.partial ? static_cast<size_t>(bytes) : 0);
  bool first = true;  // over the plan's ranks, in whichever process they are
  for (size_t rank = 0; rank < ranks(); ++rank) {
    if (!state.in_place(places_[rank])) continue;
    if (holds(rank)) memory_[rank]->Write(state.offset, bytes, state.partial && !first ? zeros.data() : from);
    first = false;
  }
}

}  // namespace gradloom
