#include "runtime/session/session_copy.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/host_memory.h"
#include "runtime/base/layout.h"
#include "runtime/plan/loss_scale_state.h"

namespace gradloom {

SavedState SavedStateOf(const Session& session) {
  std::vector<const StateTensor*> tensors;
  for (const StateTensor& state : session.plan().state) {
    if (session.Holds(state) && !state.derived()) tensors.push_back(&state);
  }
  return {.plan = &session.plan(),
          .seed = session.seed(),
          .step = session.step(),
          .batch = session.batch(),
          .fixed_learning_rate = session.fixed_learning_rate(),
          .tensors = std::move(tensors),
          .get = [&session](const StateTensor& state) { return session.Get(state.name); }};
}

namespace {

bool AllFinite(const Tensor& value) {
  if (value.dtype() == DType::kFloat32) {
    // The loop has no early exit, which makes it as fast as reading the memory.
    constexpr uint32_t kExponent = 0x7F800000;
    bool finite = true;
    for (const float element : value.as<float>()) finite &= (std::bit_cast<uint32_t>(element) & kExponent) != kExponent;
    return finite;
  }
  for (int64_t i = 0; i < value.elements(); ++i) {
    if (!std::isfinite(ElementAsDouble(value.view(), i))) return false;
  }
  return true;
}

}  // namespace

std::string NonFiniteState(const SavedState& saved) {
  const bool scaled = saved.plan->FindState(std::string(kLossScaleState)) >= 0;
  for (const StateTensor* state : saved.tensors) {
    if (state->kind == StateKind::kStatistic || !IsFloating(state->dtype)) continue;
    if (state->kind == StateKind::kAccumulator && scaled) continue;
    const Tensor value = saved.get(*state);
    if (!AllFinite(value)) return state->name;
  }
  return "";
}

void CopyState(const Session& from, Session& to) {
  for (const StateTensor& state : from.plan().state) {
    if (!state.derived()) to.Set(state.name, from.Get(state.name).view());
  }
  to.set_position(from.step(), from.batch());
  to.set_learning_rate(from.fixed_learning_rate());
}

void SessionCopy::Take(Session& session) {
  const Plan& plan = session.plan();
  taken_ = SavedStateOf(session);
  places_.resize(plan.places.size());
  tensors_.clear();
  if (plan.targets.front().device != DeviceKind::kCpu) {
    places_.clear();
    int64_t bytes = 0;
    for (const StateTensor* state : taken_.tensors) bytes += state->bytes;
    if (!HasHostMemory(bytes)) throw std::bad_alloc();
    for (const StateTensor& state : plan.state)
      tensors_.push_back(session.Holds(state) && !state.derived() ? session.Get(state.name) : Tensor());
    return;
  }
  const StateArena& arena = session.executor().state();
  for (Arena& place : places_) place.held = false;
  std::vector<std::pair<Arena*, size_t>> copied;  // places and the ranks that they are copied from
  int64_t missing = 0;
  for (size_t rank = 0; rank < arena.ranks(); ++rank) {
    Arena& place = places_[static_cast<size_t>(plan.PlaceOf(rank))];
    // Ranks of one place hold the same state.
    if (!arena.holds(rank) || place.held) continue;
    place.held = true;
    copied.emplace_back(&place, rank);
    missing += place.size == arena.bytes(rank) ? 0 : arena.bytes(rank);
  }
  if (!HasHostMemory(missing)) throw std::bad_alloc();
  for (const auto& [place, rank] : copied) {
    const int64_t bytes = arena.bytes(rank);
    if (place->size != bytes) {
      place->size = 0;
      place->bytes.reset();
      place->bytes = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
      place->size = bytes;
    }
    if (bytes > 0) std::memcpy(place->bytes.get(), arena.at(static_cast<int>(rank), 0), static_cast<size_t>(bytes));
  }
}

void SessionCopy::Release() {
  taken_ = {};
  places_.clear();
  tensors_.clear();
}

SavedState SessionCopy::state() const {
  SavedState saved = taken_;
  saved.get = [this](const StateTensor& state) { return Get(state); };
  return saved;
}

Tensor SessionCopy::Get(const StateTensor& state) const {
  const size_t index = static_cast<size_t>(&state - taken_.plan->state.data());
  if (places_.empty()) return Tensor::Copy(tensors_[index].view());
  size_t place = 0;
  while (!places_.at(place).held || !state.in_place(static_cast<int>(place))) ++place;
  const std::byte* const stored = places_[place].bytes.get() + state.offset;
  Tensor value(state.dtype, state.shape);
  if (state.layout.plain()) {
    if (value.bytes() > 0) std::memcpy(value.data(), stored, static_cast<size_t>(value.bytes()));
  } else {
    FromLayout(state.layout, state.shape, DTypeBytes(state.dtype), stored, value.data());
  }
  return value;
}

}  // namespace gradloom
