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
  gathered_.clear();
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

void Executor::SetStepParams(const Entry& entry, const StepParams& params) {
  const StepLayout& step = plan_->step;
  for (size_t r = 0; r < entry.ranks.size(); ++r) {
    const auto set = [&](int64_t offset, const auto& value) {
      if (offset >= 0) std::memcpy(memory_.step(static_cast<int>(r), offset), &value, sizeof value);
    };
    set(step.lr, params.lr);
    set(step.step, params.step);
    set(step.batch, params.batch);
    set(step.seed, params.seed);
    set(step.first, entry.ranks[r].shard_start);
  }
}

void Executor::Run(int entry_index, std::span<const TensorView> feeds, const StepParams& params) {
  CheckFeeds(plan_->entries[static_cast<size_t>(entry_index)], feeds);
  PreparedEntry& entry = Prepared(entry_index);
  feeds_.clear();
  for (const TensorView& feed : feeds) feeds_.push_back(feed.data);
  SetStepParams(plan_->entries[static_cast<size_t>(entry_index)], params);
  for (const StagedFeed& staged : entry.staged) {
    staged.copy.Scatter(static_cast<const std::byte*>(feeds_[static_cast<size_t>(staged.feed)]), staged.memory.at(0));
  }
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

std::vector<TimedInstruction> Executor::LastTimes(int entry) const {
  std::vector<TimedInstruction> times;
  const auto& prepared = prepared_[static_cast<size_t>(entry)];
  if (prepared == nullptr) return times;
  for (const auto& lane : prepared->lanes) {
    for (const PreparedInstruction& i : lane->instructions) times.push_back({lane->rank, i.index, i.begin_ns, i.end_ns});
  }
  return times;
}

const void* Executor::AddressOf(const Buffer& buffer, int rank) const {
  return buffer.arena == Arena::kFeed ? feeds_[static_cast<size_t>(buffer.feed)] : memory_.Address(buffer, rank);
}

TensorView Executor::Fetched(int entry_index, int index) {
  const Entry& entry = plan_->entries[static_cast<size_t>(entry_index)];
  const Fetch& fetch = entry.fetches[static_cast<size_t>(index)];
  const auto buffer_of = [&](size_t rank) -> const Buffer& {
    const Program& program = plan_->programs[static_cast<size_t>(entry.ranks[rank].program)];
    return program.buffers[static_cast<size_t>(FetchedBuffer(entry, rank, static_cast<size_t>(index)))];
  };
  const Buffer& first = buffer_of(0);
  // A feed is whole as it was given.
  if (first.arena == Arena::kFeed) {
    const Feed& feed = entry.feeds[static_cast<size_t>(first.feed)];
    return {feed.dtype, entry.ranks[0].shard_length == entry.batch || fetch.batch_axis < 0 ? first.shape : feed.shape, AddressOf(first, 0)};
  }
  if (fetch.batch_axis < 0 || entry.ranks[0].shard_length == entry.batch) return {first.dtype, first.shape, AddressOf(first, 0)};
  Tensor& whole = gathered_[{entry_index, index}];
  if (!whole.defined()) {
    Shape shape = first.shape;
    shape[fetch.batch_axis] = shape[fetch.batch_axis] / entry.ranks[0].shard_length * entry.batch;
    whole = Tensor(first.dtype, shape);
  }
  for (size_t rank = 0; rank < entry.ranks.size(); ++rank) {
    if (entry.ranks[rank].shard_length == 0) continue;
    const int64_t inner = fetch.batch_inner;
    CopyOf(whole.shape(), DTypeBytes(first.dtype), fetch.batch_axis, inner, entry.ranks[rank], entry.batch)
        .Gather(static_cast<const std::byte*>(AddressOf(buffer_of(rank), static_cast<int>(rank))), static_cast<std::byte*>(whole.data()));
  }
  return whole.view();
}

}  // namespace gradloom
