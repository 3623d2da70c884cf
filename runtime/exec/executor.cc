#include "runtime/exec/executor.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "runtime/base/run_on_threads.h"
#include "runtime/exec/check_machine.h"
#include "runtime/exec/device_executor.h"
#include "runtime/exec/host_executor.h"
#include "runtime/exec/shared_parameters.h"

namespace gradloom {

std::unique_ptr<Executor> Executor::Make(std::shared_ptr<const Plan> plan, const ExecutorOptions& options,
                                         std::shared_ptr<StateArena> state) {
  const bool on_host = plan->targets.front().device != DeviceKind::kCuda;
  const CoreLimit limit(on_host ? ThreadsOf(*plan, OwnRanks(*plan, options.communicator.get())) : 0);
  // A new plan that continues with existing state has already been checked.
  if (on_host && state == nullptr) {
    const int64_t shared = options.parameters != nullptr ? SharedStateBytes(*plan) : 0;
    CheckMachine(*plan, OwnRanks(*plan, options.communicator.get()), shared);
  }
  if (options.parameters != nullptr && state == nullptr) state = MakeSharedStateArena(*plan, options.parameters);
  if (!on_host) return MakeDeviceExecutor(std::move(plan), options, std::move(state));
  return std::make_unique<HostExecutor>(std::move(plan), std::move(state), options.communicator, options.check_numerics);
}

void Executor::SetChaos(uint64_t seed) {
  chaos_ = seed;
  BeginChaos(seed);
}

void Executor::TakeOver(const Executor& before) {
  timed_ = before.timed_;
  numerics_ = before.numerics_;
  if (before.chaos_) SetChaos(*before.chaos_);
}

int Executor::ThreadsOf(const Plan& plan, RankRange ranks) {
  return static_cast<int>(std::clamp<int64_t>(int64_t{plan.targets.front().threads} * ranks.count(), 1, std::numeric_limits<int>::max()));
}

namespace {

// Copies the elements within the extents of `to`, which has the same rank, in order.
void CopyBelow(const TensorView& from, Tensor& to) {
  const int rank = from.shape.rank();
  // Elements from the last truncated axis on are contiguous.
  int cut = rank - 1;
  while (cut > 0 && from.shape[cut] == to.shape()[cut]) --cut;
  int64_t run = DTypeBytes(from.dtype), stride = run;
  for (int axis = cut; axis < rank; ++axis) run *= to.shape()[axis], stride *= from.shape[axis];
  int64_t runs = 1;
  for (int axis = 0; axis < cut; ++axis) runs *= to.shape()[axis];
  for (int64_t i = 0; i < runs && run > 0; ++i) {
    int64_t place = 0, rest = i, step = 1;
    for (int axis = cut - 1; axis >= 0; --axis) {
      place += rest % to.shape()[axis] * step;
      rest /= to.shape()[axis];
      step *= from.shape[axis];
    }
    std::memcpy(static_cast<std::byte*>(to.data()) + i * run, static_cast<const std::byte*>(from.data) + place * stride,
                static_cast<size_t>(run));
  }
}

}  // namespace

TensorView Executor::Fetched(int entry, int index) {
  const TensorView whole = FetchedFull(entry, index);
  const Fetch& fetch = plan().entries[static_cast<size_t>(entry)].fetches[static_cast<size_t>(index)];
  if (fetch.extents.empty()) return whole;
  Shape shape = whole.shape;
  for (const FetchExtent& extent : fetch.extents) {
    const int64_t count = ElementAsInt(FetchedFull(entry, extent.fetch), 0);
    if (count < 0 || count > shape[extent.axis]) {
      throw Error(ErrorCode::kData, "'" + Escaped(fetch.name) + "' has " + std::to_string(count) + " elements along axis " +
                                        std::to_string(extent.axis) + ", but there is room for " + std::to_string(shape[extent.axis]));
    }
    shape[extent.axis] = count;
  }
  if (fetch.extents.back().axis == 0) return {whole.dtype, shape, whole.data};
  Tensor& cut = cut_[{entry, index}];
  if (!cut.defined() || cut.shape() != shape) cut = Tensor(whole.dtype, shape);
  CopyBelow(whole, cut);
  return cut.view();
}

void Executor::CheckFeeds(const Entry& entry, std::span<const TensorView> feeds) {
  if (feeds.size() != entry.feeds.size()) {
    throw Error(ErrorCode::kShape, "expected " + std::to_string(entry.feeds.size()) + " feeds, got " + std::to_string(feeds.size()));
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Feed& want = entry.feeds[i];
    if (feeds[i].dtype != want.dtype || feeds[i].shape != want.shape) {
      throw Error(ErrorCode::kShape, "feed '" + Escaped(want.name) + "' must be " + std::string(DTypeName(want.dtype)) +
                                         want.shape.ToString() + ", got " + std::string(DTypeName(feeds[i].dtype)) +
                                         feeds[i].shape.ToString());
    }
  }
}

Executor::FetchParts Executor::PartsOf(const Plan& plan, int entry_index, int index) {
  const Entry& entry = plan.entries[static_cast<size_t>(entry_index)];
  const Fetch& fetch = entry.fetches[static_cast<size_t>(index)];
  FetchParts found;
  for (size_t rank = 0; rank < entry.ranks.size(); ++rank) {
    const int buffer = FetchedBuffer(entry, rank, static_cast<size_t>(index));
    if (buffer < 0 || (fetch.batch_axis >= 0 && entry.ranks[rank].shard_length == 0)) continue;
    found.parts.push_back({rank, &plan.programs[static_cast<size_t>(entry.ranks[rank].program)].buffers[static_cast<size_t>(buffer)]});
  }
  const FetchParts::Part& first = found.parts.front();
  const int64_t samples = entry.ranks[first.rank].shard_length;
  found.whole = fetch.batch_axis < 0 || samples == entry.batch;
  found.shape = first.buffer->shape;
  if (!found.whole) found.shape[fetch.batch_axis] = found.shape[fetch.batch_axis] / samples * entry.batch;
  return found;
}

void Executor::KeepFedFetches(int entry_index, RankRange ranks, std::vector<const void*>& feeds) {
  const Entry& entry = plan().entries[static_cast<size_t>(entry_index)];
  std::vector<bool>& kept = kept_feeds_;
  kept.assign(feeds.size(), false);
  for (auto rank = static_cast<size_t>(ranks.first); rank < static_cast<size_t>(ranks.last); ++rank) {
    const std::vector<Buffer>& buffers = plan().programs[static_cast<size_t>(entry.ranks[rank].program)].buffers;
    for (size_t fetch = 0; fetch < entry.fetches.size(); ++fetch) {
      const int index = FetchedBuffer(entry, rank, fetch);
      if (index < 0 || buffers[static_cast<size_t>(index)].arena != Arena::kFeed) continue;
      const auto feed = static_cast<size_t>(buffers[static_cast<size_t>(index)].feed);
      if (kept[feed]) continue;
      feeds[feed] = KeepFeed(entry_index, static_cast<int>(feed), feeds[feed]);
      kept[feed] = true;
    }
  }
}

const void* Executor::KeepFeed(int entry, int feed, const void* given) {
  const Feed& stated = plan().entries[static_cast<size_t>(entry)].feeds[static_cast<size_t>(feed)];
  Tensor& kept = fed_[{entry, feed}];
  if (!kept.defined()) kept = Tensor(stated.dtype, stated.shape);
  // The caller may pass the kept feed of an earlier run.
  if (given != kept.data()) std::memcpy(kept.data(), given, static_cast<size_t>(kept.bytes()));
  return kept.data();
}

void Executor::WriteStepParams(const StepLayout& layout, const StepParams& params, const RankBinding& rank, std::byte* step) {
  const auto set = [&](int64_t offset, const auto& value) {
    if (offset >= 0) std::memcpy(step + offset, &value, sizeof value);
  };
  set(layout.lr, static_cast<float>(params.lr));
  set(layout.lr64, params.lr);
  set(layout.step, params.step);
  set(layout.batch, params.batch);
  set(layout.seed, params.seed);
  set(layout.first, rank.shard_start);
}

}  // namespace gradloom
