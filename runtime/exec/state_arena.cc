#include "runtime/exec/state_arena.h"

#include <algorithm>
#include <string>
#include <utility>

namespace gradloom {

StateArena::StateArena(const Plan& plan, const TakeArena& take) {
  for (size_t rank = 0; rank < plan.num_ranks(); ++rank) {
    places_.push_back(plan.PlaceOf(rank));
    memory_.push_back(take(rank, plan.places[static_cast<size_t>(places_.back())].state_bytes));
  }
  for (const StateTensor& state : plan.state) {
    if (state.initial.defined()) Set(state, state.initial.view());
  }
}

Tensor StateArena::Get(const StateTensor& state) const {
  const auto holder = std::find_if(places_.begin(), places_.end(), [&](int place) { return state.in_place(place); });
  if (holder == places_.end()) throw Error(ErrorCode::kPlan, "no device holds '" + Escaped(state.name) + "'");
  const ArenaMemory& memory = *memory_[static_cast<size_t>(holder - places_.begin())];
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
    throw Error(ErrorCode::kShape, "'" + Escaped(state.name) + "' is " + std::string(DTypeName(state.dtype)) + state.shape.ToString() +
                                       ", the given value " + std::string(DTypeName(value.dtype)) + value.shape.ToString());
  }
  std::vector<std::byte> stored;
  if (!state.layout.plain()) {
    stored.resize(static_cast<size_t>(state.bytes));
    ToLayout(state.layout, state.shape, DTypeBytes(state.dtype), value.data, stored.data());
  }
  for (size_t rank = 0; rank < ranks(); ++rank) {
    if (!state.in_place(places_[rank])) continue;
    if (stored.empty()) {
      memory_[rank]->Write(state.offset, value.bytes(), value.data);
    } else {
      memory_[rank]->Write(state.offset, state.bytes, stored.data());
    }
  }
}

}  // namespace gradloom
