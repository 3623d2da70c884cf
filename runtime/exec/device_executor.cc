#include "runtime/exec/device_executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "runtime/exec/background.h"
#include "runtime/exec/device_issue.h"
#include "runtime/exec/device_memory.h"
#include "runtime/exec/device_prepare.h"
#include "runtime/exec/rethrow.h"

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

class DeviceExecutor : public Executor {
 public:
  DeviceExecutor(std::shared_ptr<const Plan> plan, const ExecutorOptions& options, std::shared_ptr<StateArena> state)
      : plan_(std::move(plan)),
        options_(options),
        memories_(*plan_, options, std::move(state)),
        issuer_(*plan_, memories_),
        prepared_(plan_->entries.size()) {
    for (size_t rank = 0; rank < memories_.ranks(); ++rank) {
      Device& device = *memories_.rank(rank).device;
      copy_streams_.emplace_back(device);
      copied_.emplace_back(device, false);
    }
  }
  ~DeviceExecutor() override { background_.Wait(); }

  void Run(int entry, std::span<const TensorView> feeds, const StepParams& params, NextRun next) override;
  void FinishAhead() override { background_.Wait(); }
  TensorView FetchedWhole(int entry, int fetch) override;

  const Plan& plan() const override { return *plan_; }
  const std::shared_ptr<StateArena>& shared_state() const override { return memories_.state(); }
  void set_timed(bool timed) override { timed_ = timed; }
  std::vector<int64_t> nanoseconds(int program) const override;
  std::vector<TimedInstruction> LastTimes(int entry) const override;
  void SetChaos(uint64_t seed) override { issuer_.SetChaos(seed); }
  std::vector<DeviceMemory> memory() const override;
  void ReleaseMemory() override;
  int64_t transient_bytes(size_t rank) const override { return memories_.rank(rank).transient_bytes; }
  int64_t input_bytes(size_t rank) const override { return 2 * memories_.rank(rank).slot_bytes; }

 private:
  DeviceEntry& Prepared(int entry);
  void CopyInputs(DeviceEntry& entry, const std::vector<const void*>& feeds, int slot);
  void CopyAhead(const NextRun& next, int slot);
  void Launch(DeviceEntry& entry, int slot);
  void CheckFault();
  void NoteTimes(int entry_index, DeviceEntry& entry, Clock::time_point begin);
  void Read(const void* from, int64_t bytes, size_t rank, void* to);

  std::shared_ptr<const Plan> plan_;
  ExecutorOptions options_;
  DeviceMemories memories_;
  DeviceIssuer issuer_;
  std::vector<KernelPlace> places_;                     // by site
  std::vector<std::unique_ptr<DeviceEntry>> prepared_;  // by index into Plan::entries
  std::vector<DeviceStream> copy_streams_;              // by rank
  std::vector<DeviceEvent> copied_;                     // by rank: the inputs of the next step are there
  bool timed_ = false;
  uint32_t step_ = 0;
  std::vector<const void*> feeds_;                      // of the entry that ran last
  std::map<std::pair<int, int>, Tensor> fetched_;       // by entry and fetch: what was brought to the host
  std::map<int, std::vector<TimedInstruction>> times_;  // by entry: of its last timed run
  std::map<int, std::vector<int64_t>> sums_;            // by program, by instruction: nanoseconds of all timed runs
  int ahead_entry_ = -1;
  std::vector<const void*> ahead_feeds_;
  Background background_;  // last: its work uses all of the above
};

DeviceEntry& DeviceExecutor::Prepared(int entry) {
  if (!memories_.has_transient()) memories_.TakeTransient();
  auto& slot = prepared_[static_cast<size_t>(entry)];
  if (slot == nullptr) slot = std::make_unique<DeviceEntry>(PrepareOnDevices(*plan_, entry, memories_, places_));
  return *slot;
}

// Through host memory laid out as the slot, so that one transfer brings all; without pinned memory piece by piece, as the driver then
// copies once more anyway.
void DeviceExecutor::CopyInputs(DeviceEntry& entry, const std::vector<const void*>& feeds, int slot) {
  for (size_t r = 0; r < entry.ranks.size(); ++r) {
    RankMemory& rank = memories_.rank(r);
    const StagingMemory& staging = rank.host_inputs[static_cast<size_t>(slot)];
    std::byte* const inputs = rank.inputs.at(slot * rank.slot_bytes);
    int64_t end = 0;
    for (const InputCopy& copy : entry.ranks[r].copies) {
      const auto* const feed = static_cast<const std::byte*>(feeds[static_cast<size_t>(copy.feed)]);
      if (!staging.pinned() && copy.samples.runs == 1) {
        rank.device->Copy(inputs + copy.slot_offset, feed + copy.samples.whole_offset, copy.bytes, copy_streams_[r].get());
        continue;
      }
      copy.samples.Scatter(feed, staging.at(copy.slot_offset));
      if (!staging.pinned()) {
        rank.device->Copy(inputs + copy.slot_offset, staging.at(copy.slot_offset), copy.bytes, copy_streams_[r].get());
      }
      end = std::max(end, copy.slot_offset + copy.bytes);
    }
    if (staging.pinned()) rank.device->Copy(inputs, staging.at(0), end, copy_streams_[r].get());
    rank.device->Record(copied_[r].get(), copy_streams_[r].get());
  }
}

// On the background thread. An entry that has not run yet is left to its first run; so is what went wrong here.
void DeviceExecutor::CopyAhead(const NextRun& next, int slot) {
  std::vector<TensorView> feeds;
  const int entry = next(feeds);
  if (entry < 0 || prepared_[static_cast<size_t>(entry)] == nullptr) return;
  for (const TensorView& feed : feeds) ahead_feeds_.push_back(feed.data);
  try {
    CopyInputs(*prepared_[static_cast<size_t>(entry)], ahead_feeds_, slot);
  } catch (const Error&) {
    return;
  }
  ahead_entry_ = entry;
}

void DeviceExecutor::Run(int entry_index, std::span<const TensorView> feeds, const StepParams& params, NextRun next) {
  FinishAhead();
  const Entry& stated = plan_->entries[static_cast<size_t>(entry_index)];
  CheckFeeds(stated, feeds);
  DeviceEntry& entry = Prepared(entry_index);
  feeds_.clear();
  for (const TensorView& feed : feeds) feeds_.push_back(feed.data);
  const auto slot = static_cast<int>(++step_ % 2);
  if (ahead_entry_ != entry_index || ahead_feeds_ != feeds_) CopyInputs(entry, feeds_, slot);
  ahead_entry_ = -1;
  ahead_feeds_.clear();
  for (size_t r = 0; r < memories_.ranks(); ++r) {
    if (plan_->step.bytes > 0) WriteStepParams(plan_->step, params, stated.ranks[r], memories_.rank(r).host_step.at(0));
    memories_.rank(0).device->Wait(issuer_.origin(), copied_[r].get());
  }
  const Clock::time_point begin = Clock::now();
  Launch(entry, slot);
  if (next) background_.Start([this, next = std::move(next), other = 1 - slot] { CopyAhead(next, other); });
  memories_.rank(0).device->Synchronize(issuer_.origin());
  ++entry.runs;
  if (timed_) NoteTimes(entry_index, entry, begin);
  CheckFault();
}

// The first run of an entry loads what its kernels need, which a capture would not allow.
void DeviceExecutor::Launch(DeviceEntry& entry, int slot) {
  const bool whole = options_.graph && entry.runs > 0 && !timed_ && !issuer_.chaotic();
  if (!whole) return issuer_.Issue(entry, slot, timed_);
  std::unique_ptr<DeviceGraph>& graph = entry.graphs[static_cast<size_t>(slot)];
  if (graph == nullptr) graph = issuer_.Capture(entry, slot);
  graph->Launch(issuer_.origin());
}

void DeviceExecutor::CheckFault() {
  for (size_t r = 0; r < memories_.ranks(); ++r) {
    const std::optional<FoundFault> fault = memories_.rank(r).device->TakeFault();
    if (!fault) continue;
    const Instruction& at = *places_[static_cast<size_t>(fault->site)].instruction;
    throw Error(ErrorCode::kData, at.op + ": " + fault->what, NodeOf(at));
  }
}

void DeviceExecutor::NoteTimes(int entry_index, DeviceEntry& entry, Clock::time_point begin) {
  const int64_t start = std::chrono::duration_cast<std::chrono::nanoseconds>(begin.time_since_epoch()).count();
  std::vector<TimedInstruction>& times = times_[entry_index];
  times.clear();
  for (size_t r = 0; r < entry.ranks.size(); ++r) {
    Device& device = *memories_.rank(r).device;
    const int program = plan_->entries[static_cast<size_t>(entry_index)].ranks[r].program;
    std::vector<int64_t>& sums = sums_[program];
    sums.resize(plan_->programs[static_cast<size_t>(program)].instructions.size());
    for (const auto& lane : entry.ranks[r].lanes) {
      for (const DeviceInstruction& i : lane) {
        const auto since = [&](const DeviceEvent& event) {
          return start + static_cast<int64_t>(1e6 * device.Milliseconds(issuer_.begin(r), event.get()));
        };
        times.push_back({static_cast<int>(r), i.index, since(i.begin), since(i.end)});
        if (r == 0) sums[static_cast<size_t>(i.index)] += times.back().end_ns - times.back().begin_ns;
      }
    }
  }
}

std::vector<int64_t> DeviceExecutor::nanoseconds(int program) const {
  const auto found = sums_.find(program);
  return found == sums_.end() ? std::vector<int64_t>() : found->second;
}

std::vector<TimedInstruction> DeviceExecutor::LastTimes(int entry) const {
  const auto found = times_.find(entry);
  return found == times_.end() ? std::vector<TimedInstruction>() : found->second;
}

std::vector<DeviceMemory> DeviceExecutor::memory() const {
  std::vector<DeviceMemory> memory;
  for (size_t r = 0; r < memories_.ranks(); ++r) {
    const RankMemory& rank = memories_.rank(r);
    memory.push_back({"cuda:" + std::to_string(rank.device->ordinal()),
                      memories_.state()->bytes(r) + rank.constants.bytes() + rank.step.bytes(),
                      rank.transient.bytes() + rank.inputs.bytes(), rank.device->free_bytes()});
  }
  return memory;
}

void DeviceExecutor::ReleaseMemory() {
  FinishAhead();
  ahead_entry_ = -1;
  for (auto& entry : prepared_) entry.reset();
  fetched_.clear();
  memories_.ReleaseTransient();
}

void DeviceExecutor::Read(const void* from, int64_t bytes, size_t rank, void* to) {
  Device& device = *memories_.rank(rank).device;
  device.Copy(to, from, bytes, copy_streams_[rank].get());
  device.Synchronize(copy_streams_[rank].get());
}

TensorView DeviceExecutor::FetchedWhole(int entry_index, int index) {
  const Entry& stated = plan_->entries[static_cast<size_t>(entry_index)];
  const Fetch& fetch = stated.fetches[static_cast<size_t>(index)];
  const FetchParts found = PartsOf(*plan_, entry_index, index);
  const Buffer& first = *found.parts.front().buffer;
  if (first.arena == Arena::kFeed) return {first.dtype, found.shape, feeds_[static_cast<size_t>(first.feed)]};
  Tensor& whole = fetched_[{entry_index, index}];
  if (!whole.defined()) whole = Tensor(first.dtype, found.shape);
  const DeviceEntry& entry = *prepared_[static_cast<size_t>(entry_index)];
  std::vector<std::byte> part;
  for (const auto& [rank, buffer] : found.parts) {
    const auto staged = std::find_if(entry.fetches.begin(), entry.fetches.end(),
                                     [&, r = rank](const StagedFetch& f) { return f.fetch == index && f.rank == r; });
    const std::byte* bytes = nullptr;
    if (staged != entry.fetches.end()) {
      bytes = entry.fetched.at(staged->offset);
    } else {
      part.resize(static_cast<size_t>(buffer->bytes));
      Read(memories_.Address(*buffer, rank, static_cast<int>(step_ % 2)), buffer->bytes, rank, part.data());
      bytes = part.data();
    }
    if (found.whole) {
      std::memcpy(whole.data(), bytes, static_cast<size_t>(whole.bytes()));
      break;
    }
    CopyOf(whole.shape(), DTypeBytes(first.dtype), fetch.batch_axis, fetch.batch_inner, stated.ranks[rank], stated.batch)
        .Gather(bytes, static_cast<std::byte*>(whole.data()));
  }
  return whole.view();
}

}  // namespace

std::unique_ptr<Executor> MakeDeviceExecutor(std::shared_ptr<const Plan> plan, const ExecutorOptions& options,
                                             std::shared_ptr<StateArena> state) {
  return std::make_unique<DeviceExecutor>(std::move(plan), options, std::move(state));
}

}  // namespace gradloom
