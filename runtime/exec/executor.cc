#include "runtime/exec/executor.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

namespace gradloom {

StateArena::StateArena(const Plan& plan) {
  for (size_t rank = 0; rank < plan.num_ranks(); ++rank) {
    places_.push_back(plan.PlaceOf(rank));
    memory_.emplace_back(plan.places[static_cast<size_t>(places_.back())].state_bytes, "state");
  }
  for (const StateTensor& state : plan.state) {
    if (state.initial.defined()) Set(state, state.initial.view());
  }
}

Tensor StateArena::Get(const StateTensor& state) const {
  const auto holder = std::find_if(places_.begin(), places_.end(), [&](int place) { return state.in_place(place); });
  if (holder == places_.end()) throw Error(ErrorCode::kPlan, "no device holds '" + Escaped(state.name) + "'");
  const std::byte* const from = at(static_cast<int>(holder - places_.begin()), state.offset);
  Tensor value(state.dtype, state.shape);
  if (state.layout.plain()) {
    std::memcpy(value.data(), from, static_cast<size_t>(value.bytes()));
  } else {
    FromLayout(state.layout, state.shape, DTypeBytes(state.dtype), from, value.data());
  }
  return value;
}

void StateArena::Set(const StateTensor& state, const TensorView& value) {
  if (value.dtype != state.dtype || value.shape != state.shape) {
    throw Error(ErrorCode::kShape, "'" + Escaped(state.name) + "' is " + std::string(DTypeName(state.dtype)) + state.shape.ToString() +
                                       ", the given value " + std::string(DTypeName(value.dtype)) + value.shape.ToString());
  }
  for (size_t rank = 0; rank < ranks(); ++rank) {
    if (!state.in_place(places_[rank])) continue;
    if (state.layout.plain()) {
      std::memcpy(memory_[rank].at(state.offset), value.data, static_cast<size_t>(value.bytes()));
    } else {
      ToLayout(state.layout, state.shape, DTypeBytes(state.dtype), value.data, memory_[rank].at(state.offset));
    }
  }
}

Executor::Executor(std::shared_ptr<const Plan> plan, std::shared_ptr<StateArena> state)
    : plan_(std::move(plan)), memory_(*plan_, std::move(state)), prepared_(plan_->entries.size()) {}

Executor::~Executor() = default;

std::vector<DeviceMemory> Executor::memory() const {
  std::vector<DeviceMemory> memory(memory_.ranks());
  const int64_t free = FreeHostBytes();
  std::set<int> counted;
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    memory[rank] = {memory_.state().bytes(rank), memory_.has_transient() ? memory_.transient_bytes(rank) + memory_.input_bytes(rank) : 0,
                    free};
    if (counted.insert(memory_.place(rank)).second) memory[rank].allocated += memory_.constants_bytes(memory_.place(rank));
  }
  memory.front().allocated += memory_.step_bytes();
  return memory;
}

void Executor::ReleaseMemory() {
  FinishAhead();
  ahead_entry_ = -1;
  for (auto& entry : prepared_) entry.reset();
  gathered_.clear();
  memory_.ReleaseTransient();
}

namespace {

void SeedLanes(PreparedEntry& entry, uint64_t seed) {
  for (auto* lanes : {&entry.lanes, &entry.copies}) {
    for (const auto& lane : *lanes) lane->Seed(seed++);
  }
}

}  // namespace

PreparedEntry& Executor::Prepared(int entry) {
  if (!memory_.has_transient()) memory_.TakeTransient();
  auto& slot = prepared_[static_cast<size_t>(entry)];
  if (slot == nullptr) {
    slot = std::make_unique<PreparedEntry>(Prepare(*plan_, entry, memory_));
    SeedLanes(*slot, chaos_seed_);
  }
  return *slot;
}

void Executor::SetChaos(uint64_t seed) {
  FinishAhead();
  step_.chaos = ahead_step_.chaos = true;
  chaos_seed_ = seed * 1000003;
  for (const auto& entry : prepared_) {
    if (entry != nullptr) SeedLanes(*entry, chaos_seed_);
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

void Executor::CopyInputs(PreparedEntry& entry, const std::vector<const void*>& feeds, uint32_t step) {
  ahead_step_.number = step;
  for (const auto& lane : entry.copies) {
    lane->BindFeeds(feeds);
    lane->BindSlot(memory_.Slot(lane->rank, step));
    lane->Run(ahead_step_);
  }
}

// On the background thread. An entry that has not run yet is left to its first run.
void Executor::CopyAhead(const NextRun& next, uint32_t step) {
  std::vector<TensorView> feeds;
  const int entry = next(feeds);
  if (entry < 0 || prepared_[static_cast<size_t>(entry)] == nullptr) return;
  for (const TensorView& feed : feeds) ahead_feeds_.push_back(feed.data);
  CopyInputs(*prepared_[static_cast<size_t>(entry)], ahead_feeds_, step);
  ahead_entry_ = entry;
}

void Executor::Run(int entry_index, std::span<const TensorView> feeds, const StepParams& params, NextRun next) {
  FinishAhead();
  CheckFeeds(plan_->entries[static_cast<size_t>(entry_index)], feeds);
  PreparedEntry& entry = Prepared(entry_index);
  feeds_.clear();
  for (const TensorView& feed : feeds) feeds_.push_back(feed.data);
  SetStepParams(plan_->entries[static_cast<size_t>(entry_index)], params);
  step_.failed.store(false, std::memory_order_relaxed);
  ++step_.number;
  for (const auto& lane : entry.lanes) {
    lane->BindFeeds(feeds_);
    if (!lane->slots.empty()) lane->BindSlot(memory_.Slot(lane->rank, step_.number));
  }
  if (!entry.copies.empty() && (ahead_entry_ != entry_index || ahead_feeds_ != feeds_)) CopyInputs(entry, feeds_, step_.number);
  ahead_entry_ = -1;
  ahead_feeds_.clear();
  if (next && memory_.has_inputs()) {
    background_.Start([this, next = std::move(next), step = step_.number + 1] { CopyAhead(next, step); });
  }
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
    if (prepared_[e] == nullptr) continue;
    const std::vector<RankBinding>& ranks = plan_->entries[e].ranks;
    const auto first = std::find_if(ranks.begin(), ranks.end(), [&](const RankBinding& rank) { return rank.program == program; });
    if (first == ranks.end()) continue;
    sums.resize(plan_->programs[static_cast<size_t>(program)].instructions.size());
    for (const auto& lane : prepared_[e]->lanes) {
      if (lane->rank != static_cast<int>(first - ranks.begin())) continue;
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
  if (buffer.arena == Arena::kInput) return memory_.Slot(rank, step_.number) + buffer.offset;
  return buffer.arena == Arena::kFeed ? feeds_[static_cast<size_t>(buffer.feed)] : memory_.Address(buffer, rank);
}

TensorView Executor::Fetched(int entry_index, int index) {
  const Entry& entry = plan_->entries[static_cast<size_t>(entry_index)];
  const Fetch& fetch = entry.fetches[static_cast<size_t>(index)];
  const auto buffer_of = [&](size_t rank) -> const Buffer* {
    const int buffer = FetchedBuffer(entry, rank, static_cast<size_t>(index));
    const bool has = buffer >= 0 && (fetch.batch_axis < 0 || entry.ranks[rank].shard_length > 0);
    return has ? &plan_->programs[static_cast<size_t>(entry.ranks[rank].program)].buffers[static_cast<size_t>(buffer)] : nullptr;
  };
  size_t owner = 0;
  while (buffer_of(owner) == nullptr) ++owner;  // the verifier found one
  const Buffer& first = *buffer_of(owner);
  const int64_t samples = entry.ranks[owner].shard_length;
  const bool whole_there = fetch.batch_axis < 0 || samples == entry.batch;
  // A feed is whole as it was given.
  if (first.arena == Arena::kFeed) {
    const Feed& feed = entry.feeds[static_cast<size_t>(first.feed)];
    return {feed.dtype, whole_there ? first.shape : feed.shape, AddressOf(first, static_cast<int>(owner))};
  }
  if (whole_there) return {first.dtype, first.shape, AddressOf(first, static_cast<int>(owner))};
  Tensor& whole = gathered_[{entry_index, index}];
  if (!whole.defined()) {
    Shape shape = first.shape;
    shape[fetch.batch_axis] = shape[fetch.batch_axis] / samples * entry.batch;
    whole = Tensor(first.dtype, shape);
  }
  for (size_t rank = owner; rank < entry.ranks.size(); ++rank) {
    const Buffer* const part = buffer_of(rank);
    if (part == nullptr) continue;
    CopyOf(whole.shape(), DTypeBytes(first.dtype), fetch.batch_axis, fetch.batch_inner, entry.ranks[rank], entry.batch)
        .Gather(static_cast<const std::byte*>(AddressOf(*part, static_cast<int>(rank))), static_cast<std::byte*>(whole.data()));
  }
  return whole.view();
}

}  // namespace gradloom
