// Checks "ranks": an entry over its programs. Covers shards, feeds, fetches, and what the kind of the entry may change.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/plan/verify_scope.h"

namespace gradloom::verify {
namespace {

class EntryCheck : EntryRanks {
 public:
  using EntryRanks::EntryRanks;

  void Run() {
    const size_t before = faults_.size();
    if (!CheckRanks()) return;
    CheckShards();
    CheckFeedTypes();
    // What follows relies on shards and feeds that are as large as they say, and communication on feeds and fetches that exist.
    if (faults_.size() > before) return;
    CheckFeedsAndFetches();
    const bool fits = faults_.size() == before;
    CheckStateWrites();
    CheckHolders();
    CheckHeld();
    CheckPartialReads();
    if (fits) CheckCommunication(*this);
  }

 private:
  bool CheckRanks() {
    const size_t ranks = plan_.entries[0].ranks.size();
    if (entry_.ranks.empty() || entry_.ranks.size() != ranks) {
      faults_.Add("ranks", name_,
                  "has " + std::to_string(entry_.ranks.size()) + " ranks, but the first entry has " + std::to_string(ranks));
      return false;
    }
    for (size_t r = 0; r < ranks; ++r) {
      const int index = entry_.ranks[r].program;
      if (index < 0 || index >= static_cast<int>(plan_.programs.size())) {
        faults_.Add("ranks", Rank(r),
                    "program " + std::to_string(index) + " is out of range: the plan has " + std::to_string(plan_.programs.size()));
        return false;
      }
      if (!facts(r).sound) return false;  // the faults of the program itself have been reported
      const int first = plan_.entries[0].ranks[r].program;
      if (first < 0 || first >= static_cast<int>(plan_.programs.size())) return false;
      if (program(r).place == plan_.PlaceOf(r)) continue;
      faults_.Add("ranks", Rank(r), "has place " + std::to_string(program(r).place) + ", but another one in the first entry");
      return false;
    }
    return true;
  }

  // Every state is on the device of some rank.
  void CheckHeld() {
    std::set<int> places;
    for (size_t r = 0; r < entry_.ranks.size(); ++r) places.insert(program(r).place);
    for (const StateTensor& state : plan_.state) {
      const bool held =
          state.places.empty() || std::any_of(state.places.begin(), state.places.end(), [&](int place) { return places.contains(place); });
      if (!held) return faults_.Add("ranks", name_, "no rank holds state '" + Escaped(state.name) + "'");
    }
  }

  // Every sample is in a shard. Two shards are equal (the stages of one replica) or disjoint.
  void CheckShards() {
    std::set<std::pair<int64_t, int64_t>> shards;
    for (size_t r = 0; r < entry_.ranks.size(); ++r) {
      const RankBinding& rank = entry_.ranks[r];
      const auto end = CheckedAdd(rank.shard_start, rank.shard_length);
      if (rank.shard_start < 0 || rank.shard_length < 0 || !end || *end > entry_.batch) {
        return faults_.Add("ranks", Rank(r),
                           "its shard, " + std::to_string(rank.shard_length) + " samples from " + std::to_string(rank.shard_start) +
                               ", is not within the batch of " + std::to_string(entry_.batch));
      }
      if (rank.shard_length > 0) shards.emplace(rank.shard_start, rank.shard_length);
    }
    int64_t covered = 0;
    for (const auto& [start, length] : shards) {
      if (start != covered) {
        return faults_.Add("ranks", name_,
                           "the shards do not divide the batch: one starts at sample " + std::to_string(start) +
                               ", those before it end at " + std::to_string(covered));
      }
      covered += length;
    }
    if (covered != entry_.batch)
      faults_.Add("ranks", name_, "the shards end at sample " + std::to_string(covered) + " of " + std::to_string(entry_.batch));
  }

  // The shape of the part of a feed that a rank sees; nullopt if its batch axis cannot be divided.
  std::optional<Shape> ShardOf(const Feed& feed, const RankBinding& rank) const {
    if (feed.batch_axis < 0 || rank.shard_length == entry_.batch) return feed.shape;
    if (!SamplesIn(feed.shape, feed.batch_axis, feed.batch_inner, entry_.batch)) return std::nullopt;
    Shape shard = feed.shape;
    shard[feed.batch_axis] = feed.shape[feed.batch_axis] / entry_.batch * rank.shard_length;
    return shard;
  }

  void CheckFeed(const std::string& where, const Buffer& buffer, const RankBinding& rank) {
    if (buffer.feed >= static_cast<int>(entry_.feeds.size())) {
      return faults_.Add("names", where,
                         "feed " + std::to_string(buffer.feed) + " is out of range: the entry has " + std::to_string(entry_.feeds.size()));
    }
    const Feed& feed = entry_.feeds[static_cast<size_t>(buffer.feed)];
    const auto shard = ShardOf(feed, rank);
    // A view has the feed's bytes as well: the runtime binds all of the rank's samples, wherever a buffer reads them.
    if (!shard || buffer.dtype != feed.dtype || BytesOf(feed.dtype, *shard, {}) != buffer.bytes || !buffer.layout.plain()) {
      faults_.Add("bounds", where,
                  Describe(buffer) + " does not fit the shard of feed '" + Escaped(feed.name) + "' " + feed.shape.ToString());
    }
  }

  // Whether the rank's samples are one contiguous piece of the feed.
  bool IsContiguous(const Feed& feed, const RankBinding& rank) const {
    if (feed.batch_axis < 0 || rank.shard_length == entry_.batch) return true;
    const auto samples = SamplesIn(feed.shape, feed.batch_axis, feed.batch_inner, entry_.batch);
    return !samples || samples->outer <= 1;
  }

  void CheckFeeds(const std::string& where, const Program& program, const RankBinding& rank) {
    for (const Buffer& buffer : program.buffers) {
      if (buffer.arena == Arena::kFeed) CheckFeed(where, buffer, rank);
    }
    for (const Instruction& instruction : program.instructions) {
      for (const Use& use : instruction.uses) {
        const Buffer* buffer = use.buffer < 0 ? nullptr : &program.buffers[static_cast<size_t>(use.buffer)];
        if (buffer == nullptr || buffer->arena != Arena::kFeed || buffer->feed >= static_cast<int>(entry_.feeds.size())) continue;
        if (instruction.kind == InstructionKind::kCopy || IsContiguous(entry_.feeds[static_cast<size_t>(buffer->feed)], rank)) continue;
        faults_.Add("bounds", where, "reads " + Describe(*buffer) + " in place, but its samples are not contiguous: they must be copied");
      }
      for (const Program& body : instruction.bodies) CheckFeeds(where, body, rank);
    }
  }

  void CheckFeedTypes() {
    std::set<std::string> names;
    for (const Feed& feed : entry_.feeds) {
      const std::string what = name_ + ", feed '" + Escaped(feed.name) + "'";
      if (!names.insert(feed.name).second) faults_.Add("names", what, "the name occurs twice");
      if (!BytesOf(feed.dtype, feed.shape, {}) || feed.batch_axis < -1 || feed.batch_axis >= feed.shape.rank() || feed.batch_inner < 0 ||
          feed.index_extent < 0)
        faults_.Add("bounds", what, "has an invalid type or shape");
    }
  }

  void CheckFeedsAndFetches() {
    // Ranks with the same program and shard length see the same shapes.
    std::set<std::pair<int, int64_t>> seen;
    for (size_t r = 0; r < entry_.ranks.size() && !faults_.full(); ++r) {
      if (seen.emplace(entry_.ranks[r].program, entry_.ranks[r].shard_length).second) CheckFeeds(Rank(r), program(r), entry_.ranks[r]);
    }
    CheckAllSamplesRead();
    for (size_t f = 0; f < entry_.fetches.size() && !faults_.full(); ++f) CheckFetch(f);
  }

  static void AddFeedsRead(const Program& program, std::set<int>& feeds) {
    for (const Instruction& instruction : program.instructions) {
      for (const Use& use : instruction.uses) {
        if (use.access == Access::kRead && use.buffer >= 0) feeds.insert(program.buffers[static_cast<size_t>(use.buffer)].feed);
      }
      for (const Program& body : instruction.bodies) AddFeedsRead(body, feeds);
    }
  }

  // If a rank computes with its samples of a feed, none are left out: a rank with others could run a program for ranks without samples.
  void CheckAllSamplesRead() {
    std::map<int, std::set<int>> read_by;            // by program: feeds
    std::map<int, std::map<int64_t, int64_t>> read;  // by feed: the shards of which a rank reads it, by start
    for (const RankBinding& rank : entry_.ranks) {
      const auto [feeds, fresh] = read_by.try_emplace(rank.program);
      if (fresh) AddFeedsRead(plan_.programs[static_cast<size_t>(rank.program)], feeds->second);
      for (int feed : feeds->second) {
        const bool known = feed >= 0 && feed < static_cast<int>(entry_.feeds.size());
        if (known && rank.shard_length > 0) read[feed].emplace(rank.shard_start, rank.shard_length);
      }
    }
    for (const auto& [index, shards] : read) {
      const Feed& feed = entry_.feeds[static_cast<size_t>(index)];
      int64_t samples = 0;
      for (const auto& [start, length] : shards) samples += length;
      if (feed.batch_axis < 0 || samples == entry_.batch) continue;
      return faults_.Add("ranks", name_ + ", feed '" + Escaped(feed.name) + "'",
                         "the ranks that read it have " + std::to_string(samples) + " samples of " + std::to_string(entry_.batch));
    }
  }

  // A fetched feed is given back whole, as it was passed, so its samples must lie in it as the fetch says.
  bool DividedAsItsFeed(const Fetch& fetch, const Buffer& buffer, const RankBinding& rank) const {
    if (buffer.arena != Arena::kFeed || rank.shard_length == entry_.batch) return true;
    if (buffer.feed < 0 || buffer.feed >= static_cast<int>(entry_.feeds.size())) return false;
    const Feed& feed = entry_.feeds[static_cast<size_t>(buffer.feed)];
    if (feed.batch_axis < 0 || fetch.batch_axis < 0) return feed.batch_axis < 0 && fetch.batch_axis < 0;
    if (rank.shard_length == 0) return true;
    const auto whole = SamplesIn(feed.shape, feed.batch_axis, feed.batch_inner, entry_.batch);
    const auto part = SamplesIn(buffer.shape, fetch.batch_axis, fetch.batch_inner, rank.shard_length);
    return whole && part && whole->outer == part->outer && whole->together == part->together;
  }

  // A fetch is a value in logical order on every rank that has it. If the batch is divided, these ranks together have every sample once;
  // otherwise one rank is enough. Its ids were checked with the programs.
  void CheckFetch(size_t f) {
    const Fetch& fetch = entry_.fetches[f];
    const std::string what = name_ + ", fetch '" + Escaped(fetch.name) + "'";
    const Buffer* first = nullptr;
    int64_t first_samples = 0;
    std::set<std::pair<int64_t, int64_t>> shards;
    for (size_t r = 0; r < entry_.ranks.size(); ++r) {
      const RankBinding& rank = entry_.ranks[r];
      if (!rank.fetches.empty() && rank.fetches.size() != entry_.fetches.size()) {
        return faults_.Add("names", Rank(r),
                           "binds " + std::to_string(rank.fetches.size()) + " of " + std::to_string(entry_.fetches.size()) + " fetches");
      }
      const int id = FetchedBuffer(entry_, r, f);
      if (id < 0) continue;
      const Buffer& buffer = program(r).buffers[static_cast<size_t>(id)];
      if (buffer.dtype == DType::kUndefined || !buffer.layout.plain() || fetch.batch_axis < -1 || fetch.batch_axis >= buffer.shape.rank() ||
          fetch.batch_inner < 0) {
        return faults_.Add("names", what, Describe(buffer) + " is not a value in logical order");
      }
      if (!DividedAsItsFeed(fetch, buffer, rank))
        return faults_.Add("bounds", what, Describe(buffer) + " is divided among the ranks in another way than its feed");
      if (fetch.batch_axis >= 0 && rank.shard_length == 0) continue;
      if (first == nullptr) first = &buffer, first_samples = rank.shard_length;
      if (!shards.emplace(rank.shard_start, rank.shard_length).second && fetch.batch_axis >= 0 && rank.shard_length < entry_.batch) {
        return faults_.Add("ranks", what, "two ranks have the samples from " + std::to_string(rank.shard_start));
      }
      if (fetch.batch_axis < 0 || rank.shard_length == entry_.batch) continue;
      const int axis = fetch.batch_axis;
      const auto samples = SamplesIn(buffer.shape, axis, fetch.batch_inner, rank.shard_length);
      const auto others = SamplesIn(first->shape, axis, fetch.batch_inner, first_samples);
      // The runtime gives a fed value back as it was passed, for all ranks: the same feed, or on each rank none.
      if (buffer.feed != first->feed || !samples || !others || buffer.dtype != first->dtype || buffer.shape.rank() != first->shape.rank() ||
          samples->outer != others->outer || samples->together != others->together) {
        return faults_.Add("bounds", what,
                           Describe(buffer) + " of rank " + std::to_string(r) + " does not match the fetches of the ranks before it");
      }
    }
    if (first == nullptr) return faults_.Add("names", what, "no rank provides it");
    CheckExtents(fetch, *first, what);
    if (fetch.batch_axis < 0) return;
    int64_t samples = 0;
    for (const auto& [start, length] : shards) samples = length == entry_.batch ? length : samples + length;
    if (samples != entry_.batch)
      faults_.Add("ranks", what,
                  "the ranks that provide it have " + std::to_string(samples) + " samples of " + std::to_string(entry_.batch));
  }

  // The fetch that gives an extent must be a number that is the same on all ranks.
  void CheckExtents(const Fetch& fetch, const Buffer& buffer, const std::string& what) {
    int last = -1;
    for (const FetchExtent& extent : fetch.extents) {
      if (extent.axis <= last || extent.axis >= buffer.shape.rank() || fetch.batch_axis >= 0)
        return faults_.Add("bounds", what,
                           "axis " + std::to_string(extent.axis) + " of " + Describe(buffer) + " cannot have an extent of its own");
      last = extent.axis;
      if (extent.fetch < 0 || extent.fetch >= static_cast<int>(entry_.fetches.size()))
        return faults_.Add("names", what, "its extent is fetch " + std::to_string(extent.fetch) + ", which does not exist");
      const Fetch& number = entry_.fetches[static_cast<size_t>(extent.fetch)];
      if (!number.extents.empty() || number.batch_axis >= 0)
        return faults_.Add("bounds", what, "its extent '" + Escaped(number.name) + "' is not a single number");
      for (size_t r = 0; r < entry_.ranks.size(); ++r) {
        const int id = FetchedBuffer(entry_, r, static_cast<size_t>(extent.fetch));
        if (id < 0) continue;
        const Buffer& says = program(r).buffers[static_cast<size_t>(id)];
        if (says.dtype != DType::kInt64 || says.shape.rank() != 0)
          return faults_.Add("bounds", what, "its extent '" + Escaped(number.name) + "' is " + Describe(says) + ", not one int64");
      }
    }
  }

  bool MayWrite(StateKind kind) const {
    switch (entry_.kind) {
      case EntryKind::kStep:
      case EntryKind::kUpdate:
      case EntryKind::kLastBatch: return true;
      case EntryKind::kAccumulate: return kind == StateKind::kAccumulator || kind == StateKind::kStatistic;
      case EntryKind::kEval:
      case EntryKind::kPredict: return false;
    }
    return false;
  }

  // If one rank that holds a state tensor writes it, all of them must; otherwise their copies would diverge.
  void CheckHolders() {
    std::set<int> written, seen;
    for (size_t r = 0; r < entry_.ranks.size(); ++r) {
      if (!seen.insert(entry_.ranks[r].program).second) continue;
      for (const auto& [state, instruction] : facts(r).state_writes) written.insert(state);
    }
    seen.clear();
    for (size_t r = 0; r < entry_.ranks.size() && !faults_.full(); ++r) {
      if (!seen.insert(entry_.ranks[r].program).second) continue;
      std::set<int> own;
      for (const auto& [state, instruction] : facts(r).state_writes) own.insert(state);
      for (int state : written) {
        const StateTensor& tensor = plan_.state[static_cast<size_t>(state)];
        if (!tensor.in_place(program(r).place) || own.contains(state)) continue;
        faults_.Add("ranks", Rank(r), "holds state '" + Escaped(tensor.name) + "' but does not change it, while others do");
        break;
      }
    }
  }

  // Only the sum over all ranks is a gradient.
  void CheckPartialReads() {
    if (entry_.kind == EntryKind::kAccumulate) return;
    std::set<int> seen;
    for (size_t r = 0; r < entry_.ranks.size() && !faults_.full(); ++r) {
      if (!seen.insert(entry_.ranks[r].program).second || facts(r).partial_reads.empty()) continue;
      const auto& [state, instruction] = facts(r).partial_reads.front();
      faults_.Add("ranks", Rank(r) + (instruction < 0 ? ", a fetch" : ", " + Describe(program(r), instruction)),
                  "reads state '" + Escaped(plan_.state[static_cast<size_t>(state)].name) + "', of which each rank holds only a part");
    }
  }

  void CheckStateWrites() {
    std::set<int> seen;
    for (size_t r = 0; r < entry_.ranks.size(); ++r) {
      if (!seen.insert(entry_.ranks[r].program).second) continue;
      for (const auto& [state, instruction] : facts(r).state_writes) {
        const StateTensor& tensor = plan_.state[static_cast<size_t>(state)];
        if (MayWrite(tensor.kind)) continue;
        faults_.Add("writes", Rank(r) + ", " + Describe(program(r), instruction),
                    "changes state '" + Escaped(tensor.name) + "' in a kind of entry that must not change state");
      }
    }
  }
};

}  // namespace

EntryRanks::EntryRanks(const Plan& plan, int entry, const std::vector<ProgramFacts>& facts, FaultList& faults)
    : plan_(plan),
      entry_(plan.entries[static_cast<size_t>(entry)]),
      name_("entry " + std::to_string(entry)),
      facts_(facts),
      faults_(faults) {}

void CheckEntry(const Plan& plan, int entry, const std::vector<ProgramFacts>& facts, FaultList& faults) {
  EntryCheck(plan, entry, facts, faults).Run();
}

}  // namespace gradloom::verify
