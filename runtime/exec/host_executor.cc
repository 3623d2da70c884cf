#include "runtime/exec/host_executor.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "runtime/base/default_floats.h"
#include "runtime/base/fork_count.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/run_on_threads.h"
#include "runtime/exec/step_at_exit.h"

namespace gradloom {

HostExecutor::HostExecutor(std::shared_ptr<const Plan> plan, std::shared_ptr<StateArena> state, std::shared_ptr<Communicator> communicator,
                           bool check_numerics)
    : plan_(std::move(plan)),
      communicator_(std::move(communicator)),
      memory_(*plan_, std::move(state), OwnRanks(*plan_, communicator_.get())),
      prepared_(plan_->entries.size()) {
  step_.communicator = communicator_.get();
  if (check_numerics) numerics_ = std::make_shared<NumericsLog>(memory_.own());
}

HostExecutor::~HostExecutor() = default;

std::vector<DeviceMemory> HostExecutor::memory() const {
  std::vector<DeviceMemory> memory;
  const int64_t free = FreeHostBytes();
  std::set<int> counted;
  for (auto rank = static_cast<size_t>(memory_.own().first); rank < static_cast<size_t>(memory_.own().last); ++rank) {
    memory.push_back({memory_.ranks() == 1 ? "cpu" : "cpu:" + std::to_string(rank), memory_.state().bytes(rank),
                      memory_.has_transient() ? memory_.transient_bytes(rank) + memory_.input_bytes(rank) : 0, free});
    if (counted.insert(memory_.place(rank)).second) memory.back().allocated += memory_.constants_bytes(memory_.place(rank));
  }
  memory.front().allocated += memory_.step_bytes();
  return memory;
}

void HostExecutor::ReleaseMemory() {
  FinishPrefetch();
  prefetched_entry_ = -1;
  for (auto& entry : prepared_) entry.reset();
  ClearFetched();
  memory_.ReleaseTransient();
}

namespace {

void SeedLanes(PreparedEntry& entry, uint64_t seed) {
  for (auto* lanes : {&entry.lanes, &entry.copies}) {
    for (const auto& lane : *lanes) lane->Seed(seed++);
  }
}

}  // namespace

PreparedEntry& HostExecutor::Prepared(int entry) {
  const CoreLimit limit(ThreadsOf(*plan_, memory_.own()));
  if (!memory_.has_transient()) memory_.AllocateTransient();
  auto& slot = prepared_[static_cast<size_t>(entry)];
  if (slot == nullptr) {
    memory_.Populate(*plan_, entry);
    slot = std::make_unique<PreparedEntry>(Prepare(*plan_, entry, memory_, communicator_.get()));
    SeedLanes(*slot, chaos_seed_);
  } else if (slot->memory_version != memory_.version()) {
    Rebind(*plan_, entry, memory_, *slot);
  }
  return *slot;
}

bool HostExecutor::Extend(std::shared_ptr<const Plan> plan) {
  // The size of the state arena is fixed.
  if (!Extends(*plan, *plan_) || plan->state.size() != plan_->state.size()) return false;
  const CoreLimit limit(ThreadsOf(*plan, memory_.own()));
  DropPrefetch();
  prepared_.reserve(plan->entries.size());  // before anything changes, in case that there is no memory
  memory_.Extend(*plan, *plan_);
  plan_ = std::move(plan);
  prepared_.resize(plan_->entries.size());
  return true;
}

void HostExecutor::BeginChaos(uint64_t seed) {
  FinishPrefetch();
  step_.chaos = prefetched_step_.chaos = true;
  chaos_seed_ = seed * 1000003;
  for (const auto& entry : prepared_) {
    if (entry != nullptr) SeedLanes(*entry, chaos_seed_);
  }
}

void HostExecutor::CopyInputs(PreparedEntry& entry, const std::vector<const void*>& feeds, uint32_t step) {
  prefetched_step_.number = step;
  prefetched_step_.failed.store(false, std::memory_order_relaxed);
  for (const auto& lane : entry.copies) {
    lane->BindFeeds(feeds);
    lane->BindSlot(memory_.Slot(lane->rank, step));
    lane->Run(prefetched_step_);
  }
}

// Runs on the background thread. An entry that has not run yet is left to its first run, and so are errors that occur here.
void HostExecutor::PrefetchFeeds(const NextRun& next, uint32_t step) noexcept {
  try {
    std::vector<TensorView> feeds;
    const int entry = next(feeds);
    if (entry < 0 || prepared_[static_cast<size_t>(entry)] == nullptr) return;
    for (const TensorView& feed : feeds) prefetched_feeds_.push_back(feed.data);
    CopyInputs(*prepared_[static_cast<size_t>(entry)], prefetched_feeds_, step);
    prefetched_entry_ = entry;
  } catch (...) {
    // prefetched_entry_ is still -1: the next run copies its feeds itself.
  }
}

void HostExecutor::DropPrefetch() {
  FinishPrefetch();
  prefetched_entry_ = -1;
  prefetched_feeds_.clear();
}

bool HostExecutor::UsesTeam(int entry) const {
  const RankBinding& first = plan_->entries[static_cast<size_t>(entry)].ranks[static_cast<size_t>(memory_.own().first)];
  const std::vector<Stream>& streams = plan_->programs[static_cast<size_t>(first.program)].streams;
  return std::any_of(streams.begin(), streams.end(), [](const Stream& stream) { return stream.threads > 1; });
}

void HostExecutor::Run(int entry, std::span<const TensorView> feeds, const StepParams& params, NextRun next) {
  const StepAtExit running;
  const bool foreign_team = (DefaultFloats::Replaced() || IsLeftByFork()) && UsesTeam(entry);
  if (omp_in_parallel() == 0 && !foreign_team) return RunHere(entry, feeds, params, std::move(next));
  std::exception_ptr error;
  outside_.Start([&] {
    try {
      RunHere(entry, feeds, params, std::move(next));
    } catch (...) {
      error = std::current_exception();
    }
  });
  outside_.Wait();
  if (error) std::rethrow_exception(error);
}

bool HostExecutor::Repeats(int entry) const {
  return numerics_ == nullptr && !memory_.state().written_by_others() &&
         settled_ == SettledRun{entry, memory_.version(), memory_.state().version()};
}

void HostExecutor::RunHere(int entry_index, std::span<const TensorView> feeds, const StepParams& params, NextRun next) {
  FinishPrefetch();
  step_.wrote_state.store(false, std::memory_order_relaxed);
  CheckFeeds(plan_->entries[static_cast<size_t>(entry_index)], feeds);
  PreparedEntry& entry = Prepared(entry_index);
  feeds_.clear();
  for (const TensorView& feed : feeds) feeds_.push_back(feed.data);
  const std::vector<RankBinding>& ranks = plan_->entries[static_cast<size_t>(entry_index)].ranks;
  for (int r = memory_.own().first; r < memory_.own().last; ++r)
    WriteStepParams(plan_->step, params, ranks[static_cast<size_t>(r)], memory_.step(r, 0));
  step_.failed.store(false, std::memory_order_relaxed);
  step_.timed = timed();
  step_.numerics = numerics_.get();
  step_.repeats = Repeats(entry_index);
  settled_.entry = -1;  // until this run has ended
  if (entry.writes_state) memory_.state().NoteChange();
  const int64_t version = memory_.state().version();
  ++step_.number;
  for (const auto& lane : entry.lanes) {
    lane->BindFeeds(feeds_);
    if (!lane->slots.empty()) lane->BindSlot(memory_.Slot(lane->rank, step_.number));
  }
  if (!entry.copies.empty() && (prefetched_entry_ != entry_index || prefetched_feeds_ != feeds_)) CopyInputs(entry, feeds_, step_.number);
  prefetched_entry_ = -1;
  prefetched_feeds_.clear();
  if (next && memory_.has_inputs()) {
    background_.Start([this, next = std::move(next), step = step_.number + 1] { PrefetchFeeds(next, step); });
  }
  if (numerics_ != nullptr) numerics_->BeginRun(plan_, entry_index, params.step);
  RunLanes(entry);
  settled_ = {entry_index, memory_.version(), version};
  KeepFedFetches(entry_index, memory_.own(), feeds_);
  if (numerics_ != nullptr) numerics_->EndRun();
}

void HostExecutor::RunLanes(PreparedEntry& entry) {
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

std::vector<int64_t> HostExecutor::nanoseconds(int program) const {
  std::vector<int64_t> sums;
  for (size_t e = 0; e < prepared_.size(); ++e) {
    if (prepared_[e] == nullptr) continue;
    const std::vector<RankBinding>& ranks = plan_->entries[e].ranks;
    int first = memory_.own().first;
    while (first < memory_.own().last && ranks[static_cast<size_t>(first)].program != program) ++first;
    if (first == memory_.own().last) continue;
    sums.resize(plan_->programs[static_cast<size_t>(program)].instructions.size());
    for (const auto& lane : prepared_[e]->lanes) {
      if (lane->rank != first) continue;
      for (const PreparedInstruction& prepared : lane->instructions) sums[static_cast<size_t>(prepared.index)] += prepared.nanoseconds;
    }
  }
  return sums;
}

std::vector<TimedInstruction> HostExecutor::LastTimes(int entry) const {
  std::vector<TimedInstruction> times;
  const auto& prepared = prepared_[static_cast<size_t>(entry)];
  if (prepared == nullptr) return times;
  for (const auto& lane : prepared->lanes) {
    for (const PreparedInstruction& i : lane->instructions) times.push_back({lane->rank, i.index, i.begin_ns, i.end_ns});
  }
  return times;
}

const void* HostExecutor::AddressOf(const Buffer& buffer, int rank) const {
  if (buffer.arena == Arena::kInput) return memory_.Slot(rank, step_.number) + buffer.offset;
  return buffer.arena == Arena::kFeed ? feeds_[static_cast<size_t>(buffer.feed)] : memory_.Address(buffer, rank);
}

TensorView HostExecutor::FetchedFull(int entry_index, int index) {
  if (communicator_ != nullptr) {
    return FetchOfAll(*communicator_, entry_index, index,
                      [&](const FetchParts::Part& part) { return AddressOf(*part.buffer, static_cast<int>(part.rank)); });
  }
  const Entry& entry = plan_->entries[static_cast<size_t>(entry_index)];
  const Fetch& fetch = entry.fetches[static_cast<size_t>(index)];
  const FetchParts found = PartsOf(*plan_, entry_index, index);
  const Buffer& first = *found.parts.front().buffer;
  // A feed is stored whole, as it was passed.
  if (found.whole || first.arena == Arena::kFeed) {
    return {first.dtype, found.shape, AddressOf(first, static_cast<int>(found.parts.front().rank))};
  }
  Tensor& whole = FetchedTensor(entry_index, index, first.dtype, found.shape);
  for (const auto& [rank, part] : found.parts) {
    CopyOf(whole.shape(), DTypeBytes(first.dtype), fetch.batch_axis, fetch.batch_inner, entry.ranks[rank], entry.batch)
        .Gather(static_cast<const std::byte*>(AddressOf(*part, static_cast<int>(rank))), static_cast<std::byte*>(whole.data()));
  }
  return whole.view();
}

}  // namespace gradloom
