#include "runtime/exec/device_executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/background.h"
#include "runtime/base/threaded_copy.h"
#include "runtime/comm/communicator.h"
#include "runtime/exec/device_issue.h"
#include "runtime/exec/device_memory.h"
#include "runtime/exec/device_prepare.h"
#include "runtime/exec/rethrow.h"

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

// From here on a transfer of its own takes less time than a copy to a neighbor of other inputs.
constexpr int64_t kDirectBytes = int64_t{256} << 10;

// Tells the other processes, if any, that this process is busy.
class Busy {
 public:
  explicit Busy(Communicator* communicator) : communicator_(communicator) {
    if (communicator_ != nullptr) communicator_->SetBusy(true);
  }
  ~Busy() {
    if (communicator_ != nullptr) communicator_->SetBusy(false);
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Communicator* const communicator_;
};

class DeviceExecutor : public Executor {
 public:
  DeviceExecutor(std::shared_ptr<const Plan> plan, const ExecutorOptions& options, std::shared_ptr<StateArena> state)
      : plan_(std::move(plan)),
        options_(options),
        memories_(*plan_, options, OwnRanks(*plan_, options.communicator.get()), std::move(state)),
        issuer_(*plan_, memories_, options.communicator.get(), [this] { DropGraphs(); }),
        prepared_(plan_->entries.size()),
        copy_streams_(memories_.ranks()),
        copied_(memories_.ranks()) {
    if (options.check_numerics) numerics_ = std::make_shared<NumericsLog>(OwnRanks(*plan_, options.communicator.get()));
    for (size_t rank = memories_.first(); rank < memories_.last(); ++rank) {
      Device& device = *memories_.rank(rank).device;
      copy_streams_[rank] = DeviceStream(device);
      copied_[rank] = DeviceEvent(device, false);
    }
  }
  ~DeviceExecutor() override { DeviceExecutor::FinishPrefetch(); }

  void Run(int entry, std::span<const TensorView> feeds, const StepParams& params, NextRun next) override;
  bool Extend(std::shared_ptr<const Plan> plan) override;
  void FinishPrefetch() override;
  void DropPrefetch() override;
  TensorView FetchedFull(int entry, int fetch) override;
  std::optional<DeviceTensor> FetchedOnDevice(int entry, int fetch) override;

  const Plan& plan() const override { return *plan_; }
  const std::shared_ptr<StateArena>& shared_state() const override { return memories_.state(); }
  std::vector<int64_t> nanoseconds(int program) const override;
  std::vector<TimedInstruction> LastTimes(int entry) const override;
  std::vector<DeviceMemory> memory() const override;
  void ReleaseMemory() override;
  std::vector<std::string> TakeNotes() override;
  std::string TakeMemoryNote() override;
  int64_t transient_bytes(size_t rank) const override { return memories_.rank(rank).transient_bytes; }
  int64_t input_bytes(size_t rank) const override { return 2 * memories_.rank(rank).slot_bytes; }

 private:
  void BeginChaos(uint64_t seed) override { issuer_.SetChaos(seed); }
  DeviceEntry& Prepared(int entry);
  // Prepares an entry, with the library algorithms that the options select.
  std::unique_ptr<DeviceEntry> Prepare(int entry);
  // Finds the devices that the feeds are on, for CopyInputs. Throws Error(kDevice) for a device that the plan does not use.
  void FindFeeds(const Entry& stated, const std::vector<const void*>& feeds);
  void CopyInputs(int entry, const std::vector<const void*>& feeds, int slot);
  void PrefetchFeeds(const NextRun& next, int slot) noexcept;
  void Launch(DeviceEntry& entry, int slot, int64_t step);
  // NCCL keeps a communicator as long as a graph contains its collectives.
  void DropGraphs();
  void CheckFault();
  // Adds the time that this process's devices waited for others in the last step. The collectives themselves take part of that time.
  void CountWaits(const DeviceEntry& entry);
  void NoteTimes(int entry_index, DeviceEntry& entry, Clock::time_point begin);
  void Read(const void* from, int64_t bytes, size_t rank, void* to);
  // A feed on a device is kept on that device.
  const void* KeepFeed(int entry, int feed, const void* given) override;
  // The rank of this process whose device has the address, which is that of a feed; -1: it is in host memory.
  int RankOfFeed(const void* address) const;
  // A fetch that is a feed.
  const std::byte* FeedOnHost(int entry, int fetch, int feed);
  // A part of a fetch on the host, valid until the next call for that fetch or the next run.
  const std::byte* PartOnHost(int entry, int fetch, const FetchParts::Part& part);

  std::shared_ptr<const Plan> plan_;
  ExecutorOptions options_;
  DeviceMemories memories_;
  DeviceIssuer issuer_;
  std::vector<KernelPlace> places_;                     // indexed by site
  std::vector<std::unique_ptr<DeviceEntry>> prepared_;  // indexed as Plan::entries
  std::vector<DeviceStream> copy_streams_;              // indexed by rank
  std::vector<DeviceEvent> copied_;                     // indexed by rank: the inputs of the next step have arrived
  std::string range_name_;                              // name of the current run, kept so that a step does not allocate memory for it
  uint32_t step_ = 0;
  std::vector<const void*> feeds_;                               // feeds of the entry that ran last
  std::map<std::pair<int, int>, std::vector<std::byte>> parts_;  // by entry and fetch: parts that were copied to the host
  std::map<std::pair<int, int>, DeviceArena> fed_on_device_;     // by entry and feed: fetched feeds that were passed on a device
  std::map<int, std::vector<TimedInstruction>> times_;           // by entry: times of its last timed run
  std::map<int, std::vector<int64_t>> sums_;                     // by program and instruction: nanoseconds of all timed runs
  std::vector<int> feed_ordinals_;                               // devices of the feeds that are copied; -1: host memory
  ThreadedCopy staging_copy_;
  bool noted_pageable_memory_ = false;
  bool reads_feeds_ = false;  // copy streams may still read feeds where they are
  int prefetched_entry_ = -1;
  std::vector<const void*> prefetched_feeds_;
  Background background_;  // last member: its work uses all of the above
};

DeviceEntry& DeviceExecutor::Prepared(int entry) {
  if (!memories_.has_transient()) memories_.AllocateTransient();
  auto& slot = prepared_[static_cast<size_t>(entry)];
  if (slot == nullptr) {
    // Compiles generated code unless it is cached. The other processes wait for this; they may already have had it in their caches.
    const Busy busy(options_.communicator.get());
    const DeviceRange range(memories_.device(), "prepare", -1);
    slot = Prepare(entry);
  }
  return *slot;
}

// The first device of the first process measures, and the other devices reuse its results. Other processes take over what it chose, since
// all must compute the same.
std::unique_ptr<DeviceEntry> DeviceExecutor::Prepare(int entry) {
  if (!options_.autotune) return std::make_unique<DeviceEntry>(PrepareOnDevices(*plan_, entry, memories_, places_));
  Communicator* const communicator = options_.communicator.get();
  const bool follows = communicator != nullptr && communicator->process() > 0;
  std::string known = follows ? communicator->Broadcast(std::string()) : "";
  const auto device = [&](size_t rank) -> Device& { return *memories_.rank(rank).device; };
  auto made = std::make_unique<DeviceEntry>(PrepareOnDevices(*plan_, entry, memories_, places_, [&](size_t rank) {
    if (!follows && rank > memories_.first()) known += device(rank - 1).algorithms();
    device(rank).SetAlgorithms(follows ? Device::Algorithms::kGiven : Device::Algorithms::kMeasured, known);
  }));
  if (communicator != nullptr && !follows) communicator->Broadcast(known + device(memories_.last() - 1).algorithms());
  return made;
}

std::vector<std::string> DeviceExecutor::TakeNotes() {
  std::vector<std::string> notes;
  for (size_t r = memories_.first(); r < memories_.last(); ++r) {
    for (std::string& note : memories_.rank(r).device->TakeNotes()) notes.push_back(std::move(note));
  }
  return notes;
}

std::string DeviceExecutor::TakeMemoryNote() {
  if (!memories_.lacks_pinned_memory() || std::exchange(noted_pageable_memory_, true)) return {};
  return "the system refuses pinned memory, so inputs are copied to GPUs from pageable memory, which is slower: raise the limit of locked "
         "memory (ulimit -l)";
}

void DeviceExecutor::FindFeeds(const Entry& stated, const std::vector<const void*>& feeds) {
  feed_ordinals_.clear();
  for (size_t f = 0; f < feeds.size(); ++f) {
    const int ordinal = feed_ordinals_.emplace_back(CudaPlatform()->OrdinalOf(feeds[f]));
    std::string ours;
    bool known = ordinal < 0;
    for (size_t r = memories_.first(); r < memories_.last() && !known; ++r) {
      known = memories_.rank(r).device->ordinal() == ordinal;
      ours += (ours.empty() ? "cuda:" : ", cuda:") + std::to_string(memories_.rank(r).device->ordinal());
    }
    if (known) continue;
    throw Error(ErrorCode::kDevice,
                "input '" + Escaped(stated.feeds[f].name) + "' is on cuda:" + std::to_string(ordinal) + ", but the session is on " + ours,
                "", "pass it from a device of the session, or from host memory");
  }
}

// Copies through host memory with the layout of the slot, so that one transfer moves neighboring inputs. An input that is on a device, or
// large and pinned by the caller, is copied from where it is. So are all inputs without pinned memory of ours, since the driver would copy
// them once more anyway.
void DeviceExecutor::CopyInputs(int entry_index, const std::vector<const void*>& feeds, int slot) {
  DeviceEntry& entry = *prepared_[static_cast<size_t>(entry_index)];
  for (size_t r = memories_.first(); r < memories_.last(); ++r) {
    RankMemory& rank = memories_.rank(r);
    const StagingMemory& staging = rank.host_inputs[static_cast<size_t>(slot)];
    std::byte* const inputs = rank.inputs.at(slot * rank.slot_bytes);
    void* const stream = copy_streams_[r].get();
    int64_t first = 0, end = 0;  // of the slot: what has been staged, but not transferred
    const auto transfer = [&] {
      if (end > first) rank.device->Copy(inputs + first, staging.at(first), end - first, stream);
      first = end;
    };
    for (const InputCopy& copy : entry.ranks[r].copies) {
      const int ordinal = feed_ordinals_[static_cast<size_t>(copy.feed)];
      const SampleCopy& samples = copy.samples;
      const auto* const feed = static_cast<const std::byte*>(feeds[static_cast<size_t>(copy.feed)]) + samples.whole_offset;
      const bool whole = ordinal < 0 && samples.runs == 1;
      const bool pinned = whole && (copy.bytes >= kDirectBytes || !staging.pinned()) && CudaPlatform()->Pinned(feed, copy.bytes);
      if (ordinal >= 0 || pinned || (whole && !staging.pinned())) {
        transfer();
        if (ordinal >= 0) rank.device->WaitForDefaultStream(stream, ordinal);
        for (int64_t run = 0; run < samples.runs; ++run) {
          rank.device->Copy(inputs + copy.slot_offset + run * samples.bytes, feed + run * samples.whole_step, samples.bytes, stream);
        }
        reads_feeds_ = true;
        continue;
      }
      for (int64_t run = 0; run < samples.runs; ++run) {
        staging_copy_.Copy(staging.at(copy.slot_offset + run * samples.bytes), feed + run * samples.whole_step, samples.bytes);
      }
      if (first == end) first = copy.slot_offset;
      end = copy.slot_offset + copy.bytes;
    }
    transfer();
    rank.device->Record(copied_[r].get(), stream);
  }
}

// Copies from where the feeds are may still be under way when the background thread is done.
void DeviceExecutor::FinishPrefetch() {
  background_.Wait();
  if (!std::exchange(reads_feeds_, false) || issuer_.abandoned()) return;
  for (size_t r = memories_.first(); r < memories_.last(); ++r) issuer_.AwaitCopies(r, copy_streams_[r].get());
}

void DeviceExecutor::DropPrefetch() {
  FinishPrefetch();
  prefetched_entry_ = -1;
  prefetched_feeds_.clear();
}

// Runs on the background thread. An entry that has not run yet is left to its first run, and so are errors that occur here.
void DeviceExecutor::PrefetchFeeds(const NextRun& next, int slot) noexcept {
  try {
    std::vector<TensorView> feeds;
    const int entry = next(feeds);
    if (entry < 0 || prepared_[static_cast<size_t>(entry)] == nullptr) return;
    for (const TensorView& feed : feeds) prefetched_feeds_.push_back(feed.data);
    FindFeeds(plan_->entries[static_cast<size_t>(entry)], prefetched_feeds_);
    CopyInputs(entry, prefetched_feeds_, slot);
    prefetched_entry_ = entry;
  } catch (...) {
    // prefetched_entry_ is still -1: the next run copies its feeds itself.
  }
}

void DeviceExecutor::Run(int entry_index, std::span<const TensorView> feeds, const StepParams& params, NextRun next) {
  FinishPrefetch();
  const Entry& stated = plan_->entries[static_cast<size_t>(entry_index)];
  if (issuer_.abandoned()) {
    throw Error(ErrorCode::kDevice, "a GPU has failed in an earlier step, and other GPUs of this process still wait for it", "",
                "start the program again");
  }
  CheckFeeds(stated, feeds);
  DeviceEntry& entry = Prepared(entry_index);
  range_name_.assign("step ").append(std::to_string(params.step)).append(", ").append(entry.name);
  const DeviceRange range(memories_.device(), range_name_.c_str(), params.step);
  feeds_.clear();
  for (const TensorView& feed : feeds) feeds_.push_back(feed.data);
  const auto slot = static_cast<int>(++step_ % 2);
  const bool copied = prefetched_entry_ == entry_index && prefetched_feeds_ == feeds_;
  prefetched_entry_ = -1;
  prefetched_feeds_.clear();
  if (!copied) FindFeeds(stated, feeds_);
  const auto copy_ahead = [&] {
    if (next) background_.Start([this, next = std::move(next), other = 1 - slot] { PrefetchFeeds(next, other); });
  };
  Clock::time_point begin;
  try {
    if (!copied) CopyInputs(entry_index, feeds_, slot);
    for (size_t r = memories_.first(); r < memories_.last(); ++r) {
      if (plan_->step.bytes > 0) WriteStepParams(plan_->step, params, stated.ranks[r], memories_.rank(r).host_step.at(0));
      memories_.device().Wait(issuer_.origin(), copied_[r].get());
    }
    begin = Clock::now();
    // Entries with decisions are enqueued while they run.
    if (entry.decides) copy_ahead();
    if (numerics_ != nullptr) numerics_->BeginRun(plan_, entry_index, params.step);
    Launch(entry, slot, params.step);
  } catch (...) {
    issuer_.Abort();
    throw;
  }
  if (!entry.decides) copy_ahead();
  issuer_.Await();
  ++entry.runs;
  if (timed()) NoteTimes(entry_index, entry, begin);
  if (options_.communicator != nullptr) CountWaits(entry);
  CheckFault();
  KeepFedFetches(entry_index, {static_cast<int>(memories_.first()), static_cast<int>(memories_.last())}, feeds_);
  if (numerics_ != nullptr) numerics_->EndRun();
}

bool DeviceExecutor::Extend(std::shared_ptr<const Plan> plan) {
  // The size of the state arena is fixed.
  if (!Extends(*plan, *plan_) || plan->state.size() != plan_->state.size() || !issuer_.Serves(*plan)) return false;
  // A device may not have room for the old and the larger memory of steps at the same time. What is prepared has addresses in the old one.
  if (memories_.Grows(*plan)) {
    ReleaseMemory();
  } else {
    DropPrefetch();
  }
  memories_.Extend(*plan, *plan_);
  plan_ = std::move(plan);
  prepared_.resize(plan_->entries.size());
  return true;
}

// The first run of an entry is not captured, because it loads code that its kernels need, and makes groups, which a capture does not
// permit.
void DeviceExecutor::Launch(DeviceEntry& entry, int slot, int64_t step) {
  const bool graphs = options_.graph && !timed() && !issuer_.chaotic() && numerics_ == nullptr;
  if (!graphs || entry.decides || entry.runs == 0)
    return issuer_.Issue(entry, {slot, step, timed(), numerics_.get(), graphs && entry.decides});
  std::unique_ptr<DeviceGraph>& graph = entry.graphs[static_cast<size_t>(slot)];
  if (graph == nullptr) graph = issuer_.Capture(entry, slot);
  graph->Launch(issuer_.origin());
}

void DeviceExecutor::DropGraphs() {
  for (const auto& entry : prepared_) {
    if (entry == nullptr) continue;
    entry->graphs = {};
    // The next run makes the groups again, which a capture does not permit either.
    entry->runs = 0;
  }
}

void DeviceExecutor::CheckFault() {
  // Reads the faults of all devices; otherwise the next step would find the remaining ones.
  std::optional<FoundFault> first;
  for (size_t r = memories_.first(); r < memories_.last(); ++r) {
    std::optional<FoundFault> fault = memories_.rank(r).device->TakeFault();
    if (!first) first = std::move(fault);
  }
  const Instruction* const loop = issuer_.TakeOverrunLoop();
  if (first) {
    const Instruction& at = *places_[static_cast<size_t>(first->site)].instruction;
    // The names of internal operators mean nothing to users.
    throw Error(ErrorCode::kData, (at.domain == "gradloom" ? "" : at.op + ": ") + first->what, NodeOf(at));
  }
  // A fault found by a kernel takes precedence, since it may be why a loop did not end.
  if (loop != nullptr) ThrowTripLimit(*loop);
}

// Of several devices, the others wait for the one that waits least.
void DeviceExecutor::CountWaits(const DeviceEntry& entry) {
  std::optional<double> least_ms;
  for (size_t r = memories_.first(); r < memories_.last(); ++r) {
    double ms = 0;
    for (const DeviceInstruction* i : entry.ranks[r].apart) ms += memories_.rank(r).device->Milliseconds(i->begin.get(), i->end.get());
    least_ms = std::min(ms, least_ms.value_or(ms));
  }
  options_.communicator->CountWaited(std::chrono::nanoseconds(static_cast<int64_t>(1e6 * least_ms.value_or(0))));
}

void DeviceExecutor::NoteTimes(int entry_index, DeviceEntry& entry, Clock::time_point begin) {
  const int64_t start = std::chrono::duration_cast<std::chrono::nanoseconds>(begin.time_since_epoch()).count();
  std::vector<TimedInstruction>& times = times_[entry_index];
  times.clear();
  for (size_t r = memories_.first(); r < memories_.last(); ++r) {
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
        if (r == memories_.first()) sums[static_cast<size_t>(i.index)] += times.back().end_ns - times.back().begin_ns;
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
  for (size_t r = memories_.first(); r < memories_.last(); ++r) {
    const RankMemory& rank = memories_.rank(r);
    memory.push_back({"cuda:" + std::to_string(rank.device->ordinal()),
                      memories_.state()->bytes(r) + rank.constants_bytes() + rank.step.bytes(),
                      rank.transient.bytes() + rank.inputs.bytes(), rank.device->free_bytes()});
  }
  return memory;
}

void DeviceExecutor::ReleaseMemory() {
  DropPrefetch();
  for (auto& entry : prepared_) entry.reset();
  ClearFetched();
  parts_.clear();
  fed_on_device_.clear();
  memories_.ReleaseTransient();
}

void DeviceExecutor::Read(const void* from, int64_t bytes, size_t rank, void* to) {
  Device& device = *memories_.rank(rank).device;
  device.Copy(to, from, bytes, copy_streams_[rank].get());
  device.Synchronize(copy_streams_[rank].get());
}

int DeviceExecutor::RankOfFeed(const void* address) const {
  const int ordinal = CudaPlatform()->OrdinalOf(address);
  if (ordinal < 0) return -1;
  size_t owner = memories_.first();
  while (memories_.rank(owner).device->ordinal() != ordinal) ++owner;  // FindFeeds has checked that it is a device of the session
  return static_cast<int>(owner);
}

const void* DeviceExecutor::KeepFeed(int entry, int feed, const void* given) {
  const int owner = RankOfFeed(given);
  if (owner < 0) return Executor::KeepFeed(entry, feed, given);
  const Feed& stated = plan_->entries[static_cast<size_t>(entry)].feeds[static_cast<size_t>(feed)];
  const std::shared_ptr<Device>& device = memories_.rank(static_cast<size_t>(owner)).device;
  const int64_t bytes = stated.shape.elements() * DTypeBytes(stated.dtype);
  DeviceArena& kept = fed_on_device_[{entry, feed}];
  // The feed of an earlier run may have been on another device.
  if (kept.at(0) == nullptr || RankOfFeed(kept.at(0)) != owner) kept = DeviceArena(device, bytes, "a fetched input");
  if (given != kept.at(0)) Read(given, bytes, static_cast<size_t>(owner), kept.at(0));
  return kept.at(0);
}

const std::byte* DeviceExecutor::FeedOnHost(int entry_index, int index, int feed) {
  const auto* const given = static_cast<const std::byte*>(feeds_[static_cast<size_t>(feed)]);
  const int owner = RankOfFeed(given);
  if (owner < 0) return given;
  const Feed& stated = plan_->entries[static_cast<size_t>(entry_index)].feeds[static_cast<size_t>(feed)];
  std::vector<std::byte>& bytes = parts_[{entry_index, index}];
  bytes.resize(static_cast<size_t>(stated.shape.elements() * DTypeBytes(stated.dtype)));
  Read(given, static_cast<int64_t>(bytes.size()), static_cast<size_t>(owner), bytes.data());
  return bytes.data();
}

const std::byte* DeviceExecutor::PartOnHost(int entry_index, int index, const FetchParts::Part& part) {
  if (part.buffer->arena == Arena::kFeed) return FeedOnHost(entry_index, index, part.buffer->feed);
  const DeviceEntry& entry = *prepared_[static_cast<size_t>(entry_index)];
  const auto staged = std::find_if(entry.fetches.begin(), entry.fetches.end(),
                                   [&](const StagedFetch& f) { return f.fetch == index && f.rank == part.rank; });
  if (staged != entry.fetches.end()) return entry.fetched.at(staged->offset);
  std::vector<std::byte>& bytes = parts_[{entry_index, index}];
  bytes.resize(static_cast<size_t>(part.buffer->bytes));
  Read(memories_.Address(*part.buffer, part.rank, static_cast<int>(step_ % 2)), part.buffer->bytes, part.rank, bytes.data());
  return bytes.data();
}

TensorView DeviceExecutor::FetchedFull(int entry_index, int index) {
  const auto on_host = [&](const FetchParts::Part& part) { return PartOnHost(entry_index, index, part); };
  if (options_.communicator != nullptr) return FetchOfAll(*options_.communicator, entry_index, index, on_host);
  const Entry& stated = plan_->entries[static_cast<size_t>(entry_index)];
  const Fetch& fetch = stated.fetches[static_cast<size_t>(index)];
  const FetchParts found = PartsOf(*plan_, entry_index, index);
  const Buffer& first = *found.parts.front().buffer;
  if (first.arena == Arena::kFeed) return {first.dtype, found.shape, FeedOnHost(entry_index, index, first.feed)};
  Tensor& whole = FetchedTensor(entry_index, index, first.dtype, found.shape);
  for (const FetchParts::Part& part : found.parts) {
    const std::byte* const bytes = on_host(part);
    if (found.whole) {
      std::memcpy(whole.data(), bytes, static_cast<size_t>(whole.bytes()));
      break;
    }
    CopyOf(whole.shape(), DTypeBytes(first.dtype), fetch.batch_axis, fetch.batch_inner, stated.ranks[part.rank], stated.batch)
        .Gather(bytes, static_cast<std::byte*>(whole.data()));
  }
  return whole.view();
}

std::optional<DeviceTensor> DeviceExecutor::FetchedOnDevice(int entry_index, int index) {
  const FetchParts found = PartsOf(*plan_, entry_index, index);
  const FetchParts::Part& part = found.parts.front();
  if (!found.whole || options_.communicator != nullptr) return std::nullopt;
  const void* const address = part.buffer->arena == Arena::kFeed ? feeds_[static_cast<size_t>(part.buffer->feed)]
                                                                 : memories_.Address(*part.buffer, part.rank, static_cast<int>(step_ % 2));
  const int ordinal = CudaPlatform()->OrdinalOf(address);
  if (ordinal < 0) return std::nullopt;
  return DeviceTensor{ordinal, {part.buffer->dtype, found.shape, address}};
}

}  // namespace

std::unique_ptr<Executor> MakeDeviceExecutor(std::shared_ptr<const Plan> plan, const ExecutorOptions& options,
                                             std::shared_ptr<StateArena> state) {
  return std::make_unique<DeviceExecutor>(std::move(plan), options, std::move(state));
}

}  // namespace gradloom
