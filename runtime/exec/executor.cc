#include "runtime/exec/executor.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace gradloom {

StateArena::StateArena(const Plan& plan) {
  for (size_t rank = 0; rank < plan.num_ranks(); ++rank) memory_.emplace_back(plan.state_bytes, "state");
  for (const StateTensor& state : plan.state) {
    if (state.initial.defined()) Set(state, state.initial.view());
  }
}

Tensor StateArena::Get(const StateTensor& state) const {
  Tensor value(state.dtype, state.shape);
  if (state.layout.plain()) {
    std::memcpy(value.data(), at(0, state.offset), static_cast<size_t>(value.bytes()));
  } else {
    FromLayout(state.layout, state.shape, DTypeBytes(state.dtype), at(0, state.offset), value.data());
  }
  return value;
}

void StateArena::Set(const StateTensor& state, const TensorView& value) {
  if (value.dtype != state.dtype || value.shape != state.shape) {
    throw Error(ErrorCode::kShape, "'" + Escaped(state.name) + "' is " + std::string(DTypeName(state.dtype)) + state.shape.ToString() +
                                       ", the given value " + std::string(DTypeName(value.dtype)) + value.shape.ToString());
  }
  for (const HostArena& memory : memory_) {
    if (state.layout.plain()) {
      std::memcpy(memory.at(state.offset), value.data, static_cast<size_t>(value.bytes()));
    } else {
      ToLayout(state.layout, state.shape, DTypeBytes(state.dtype), value.data, memory.at(state.offset));
    }
  }
}

Executor::Executor(std::shared_ptr<const Plan> plan, std::shared_ptr<StateArena> state)
    : plan_(std::move(plan)), memory_(*plan_, std::move(state)), prepared_(plan_->entries.size()) {}

Executor::~Executor() = default;

std::vector<DeviceMemory> Executor::memory() const {
  std::vector<DeviceMemory> memory(memory_.ranks());
  const int64_t cached = memory_.has_transient() ? memory_.transient_bytes() : 0, free = FreeHostBytes();
  for (DeviceMemory& device : memory) device = {memory_.state().bytes(), cached, free};
  memory.front().allocated += memory_.shared_bytes();
  return memory;
}

void Executor::ReleaseMemory() {
  for (auto& entry : prepared_) entry.reset();
  memory_.ReleaseTransient();
}

PreparedEntry& Executor::Prepared(int entry) {
  if (!memory_.has_transient()) memory_.TakeTransient();
  auto& slot = prepared_[static_cast<size_t>(entry)];
  if (slot == nullptr) {
    slot = std::make_unique<PreparedEntry>(Prepare(*plan_, entry, memory_));
    for (size_t i = 0; i < slot->lanes.size(); ++i) slot->lanes[i]->Seed(chaos_seed_ + i);
  }
  return *slot;
}

void Executor::SetChaos(uint64_t seed) {
  step_.chaos = true;
  chaos_seed_ = seed * 1000003;
  for (const auto& entry : prepared_) {
    for (size_t i = 0; entry != nullptr && i < entry->lanes.size(); ++i) entry->lanes[i]->Seed(chaos_seed_ + i);
  }
}

namespace {

void CheckFeeds(const Entry& entry, std::span<const TensorView> feeds) {
  if (feeds.size() != entry.feeds.size()) {
    throw Error(ErrorCode::kShape, "the entry takes " + std::to_string(entry.feeds.size()) + " feeds, got " + std::to_string(feeds.size()));
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Feed& want = entry.feeds[i];
    if (feeds[i].dtype != want.dtype || feeds[i].shape != want.shape) {
      throw Error(ErrorCode::kShape, "feed '" + Escaped(want.name) + "' is " + std::string(DTypeName(want.dtype)) + want.shape.ToString() +
                                         ", got " + std::string(DTypeName(feeds[i].dtype)) + feeds[i].shape.ToString());
    }
  }
}

}  // namespace

void Executor::Run(int entry_index, std::span<const TensorView> feeds, const StepParams& params) {
  CheckFeeds(plan_->entries[static_cast<size_t>(entry_index)], feeds);
  PreparedEntry& entry = Prepared(entry_index);
  feeds_.clear();
  for (const TensorView& feed : feeds) feeds_.push_back(feed.data);
  const StepLayout& step = plan_->step;
  if (step.lr >= 0) std::memcpy(memory_.step(step.lr), &params.lr, sizeof params.lr);
  if (step.step >= 0) std::memcpy(memory_.step(step.step), &params.step, sizeof params.step);
  if (step.batch >= 0) std::memcpy(memory_.step(step.batch), &params.batch, sizeof params.batch);
  if (step.seed >= 0) std::memcpy(memory_.step(step.seed), &params.seed, sizeof params.seed);
  for (const auto& lane : entry.lanes) lane->BindFeeds(feeds_);
  step_.failed.store(false, std::memory_order_relaxed);
  ++step_.number;
  if (entry.lanes.size() == 1) return entry.lanes[0]->Run(step_);
  errors_.assign(entry.lanes.size(), nullptr);
  threads_.Run(static_cast<int>(entry.lanes.size()), [&](int i) {
    const auto lane = static_cast<size_t>(i);
    try {
      entry.lanes[lane]->Run(step_);
    } catch (...) {
      errors_[lane] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors_) {
    if (error) std::rethrow_exception(error);
  }
}

std::vector<int64_t> Executor::nanoseconds(int program) const {
  std::vector<int64_t> sums;
  for (size_t e = 0; e < prepared_.size(); ++e) {
    if (prepared_[e] == nullptr || plan_->entries[e].ranks[0].program != program) continue;
    sums.resize(plan_->programs[static_cast<size_t>(program)].instructions.size());
    for (const auto& lane : prepared_[e]->lanes) {
      if (lane->rank != 0) break;
      for (const PreparedInstruction& prepared : lane->instructions) sums[static_cast<size_t>(prepared.index)] += prepared.nanoseconds;
    }
  }
  return sums;
}

TensorView Executor::Fetched(int entry_index, int fetch) const {
  const Entry& entry = plan_->entries[static_cast<size_t>(entry_index)];
  const Program& program = plan_->programs[static_cast<size_t>(entry.ranks[0].program)];
  const Buffer& buffer = program.buffers[static_cast<size_t>(entry.fetches[static_cast<size_t>(fetch)].buffer)];
  const void* data = buffer.arena == Arena::kFeed ? feeds_[static_cast<size_t>(buffer.feed)] : memory_.Address(buffer, 0);
  return {buffer.dtype, buffer.shape, data};
}

}  // namespace gradloom
