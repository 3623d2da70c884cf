// ranks: an entry over its programs. Shards, feeds, fetches, what the entry's kind may change, the
// meeting of ranks in collectives and transfers, and what they know of each other's refusals by it.
#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/plan/verify_scope.h"

namespace gradloom::verify {
namespace {

constexpr size_t kMaxMeetings = size_t{1} << 26;

class EntryCheck {
 public:
  EntryCheck(const Plan& plan, int entry, const std::vector<ProgramFacts>& facts, FaultList& faults)
      : plan_(plan),
        entry_(plan.entries[static_cast<size_t>(entry)]),
        name_("entry " + std::to_string(entry)),
        facts_(facts),
        faults_(faults) {
    for (const Group& group : plan.groups) members_.emplace_back(group.ranks.begin(), group.ranks.end());
  }

  void Run() {
    if (!CheckRanks()) return;
    CheckShards();
    CheckFeedsAndFetches();
    CheckStateWrites();
    CheckHolders();
    if (CheckBindings()) Meet();
  }

 private:
  const Program& program(size_t rank) const { return plan_.programs[static_cast<size_t>(entry_.ranks[rank].program)]; }
  const ProgramFacts& facts(size_t rank) const { return facts_[static_cast<size_t>(entry_.ranks[rank].program)]; }
  std::string Rank(size_t rank) const { return name_ + ", rank " + std::to_string(rank); }

  bool CheckRanks() {
    const size_t ranks = plan_.entries[0].ranks.size();
    if (entry_.ranks.empty() || entry_.ranks.size() != ranks) {
      faults_.Add("ranks", name_, "has " + std::to_string(entry_.ranks.size()) + " ranks, and the first entry " + std::to_string(ranks));
      return false;
    }
    for (size_t r = 0; r < ranks; ++r) {
      const int index = entry_.ranks[r].program;
      if (index < 0 || index >= static_cast<int>(plan_.programs.size())) {
        faults_.Add("ranks", Rank(r),
                    "program " + std::to_string(index) + " is out of range: the plan has " + std::to_string(plan_.programs.size()));
        return false;
      }
      if (!facts(r).sound) return false;  // its own faults are known
      const int first = plan_.entries[0].ranks[r].program;
      if (first < 0 || first >= static_cast<int>(plan_.programs.size())) return false;
      if (program(r).place == plan_.PlaceOf(r)) continue;
      faults_.Add("ranks", Rank(r), "is of place " + std::to_string(program(r).place) + ", and of another in the first entry");
      return false;
    }
    return true;
  }

  // Every sample is in a shard; two shards are the same (the stages of one replica) or share no sample.
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

  // The part of a feed that a rank sees, or an empty optional where its batch axis cannot be divided so.
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
    // A whole that is viewed in parts has the feed's bytes too: a part is within its whole.
    if (!shard || buffer.dtype != feed.dtype || (buffer.whole < 0 && BytesOf(feed.dtype, *shard, {}) != buffer.bytes) ||
        !buffer.layout.plain()) {
      faults_.Add("bounds", where,
                  Describe(buffer) + " does not fit the shard of feed '" + Escaped(feed.name) + "' " + feed.shape.ToString());
    }
  }

  // Whether the rank's samples of a feed are one piece of it.
  bool LiesTogether(const Feed& feed, const RankBinding& rank) const {
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
        if (instruction.kind == InstructionKind::kCopy || LiesTogether(entry_.feeds[static_cast<size_t>(buffer->feed)], rank)) continue;
        faults_.Add("bounds", where,
                    "reads " + Describe(*buffer) + " in place, and its samples do not lie together: they have to be copied");
      }
      for (const Program& body : instruction.bodies) CheckFeeds(where, body, rank);
    }
  }

  void CheckFeedsAndFetches() {
    std::set<std::string> names;
    for (const Feed& feed : entry_.feeds) {
      const std::string what = name_ + ", feed '" + Escaped(feed.name) + "'";
      if (!names.insert(feed.name).second) faults_.Add("names", what, "the name is there twice");
      if (!BytesOf(feed.dtype, feed.shape, {}) || feed.batch_axis < -1 || feed.batch_axis >= feed.shape.rank() || feed.batch_inner < 0)
        faults_.Add("bounds", what, "has no possible type and shape");
    }
    // Ranks that share a program and a shard length see the same.
    std::set<std::pair<int, int64_t>> seen;
    for (size_t r = 0; r < entry_.ranks.size() && !faults_.full(); ++r) {
      if (seen.emplace(entry_.ranks[r].program, entry_.ranks[r].shard_length).second) CheckFeeds(Rank(r), program(r), entry_.ranks[r]);
    }
    for (size_t f = 0; f < entry_.fetches.size() && !faults_.full(); ++f) CheckFetch(f);
  }

  // A value in logical order on every rank that has it. Where the batch is divided these ranks have all of it, each sample once;
  // else one rank is enough. That ids are in range was checked with the programs.
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
        return faults_.Add("names", what, Describe(buffer) + " is no value in logical order");
      }
      if (fetch.batch_axis >= 0 && rank.shard_length == 0) continue;
      if (first == nullptr) first = &buffer, first_samples = rank.shard_length;
      if (!shards.emplace(rank.shard_start, rank.shard_length).second && fetch.batch_axis >= 0 && rank.shard_length < entry_.batch) {
        return faults_.Add("ranks", what, "two ranks have the samples from " + std::to_string(rank.shard_start));
      }
      if (fetch.batch_axis < 0 || rank.shard_length == entry_.batch) continue;
      const int axis = fetch.batch_axis;
      const auto samples = SamplesIn(buffer.shape, axis, fetch.batch_inner, rank.shard_length);
      const auto others = SamplesIn(first->shape, axis, fetch.batch_inner, first_samples);
      if (!samples || !others || buffer.dtype != first->dtype || buffer.shape.rank() != first->shape.rank() ||
          samples->outer != others->outer || samples->together != others->together) {
        return faults_.Add("bounds", what,
                           Describe(buffer) + " of rank " + std::to_string(r) + " is no part of what the ranks before it have");
      }
    }
    if (first == nullptr) return faults_.Add("names", what, "no rank has it");
    CheckExtents(fetch, *first, what);
    if (fetch.batch_axis < 0) return;
    int64_t samples = 0;
    for (const auto& [start, length] : shards) samples = length == entry_.batch ? length : samples + length;
    if (samples != entry_.batch)
      faults_.Add("ranks", what, "the ranks that have it have " + std::to_string(samples) + " samples of " + std::to_string(entry_.batch));
  }

  // What says an extent is a number that is the same for all ranks.
  void CheckExtents(const Fetch& fetch, const Buffer& buffer, const std::string& what) {
    int last = -1;
    for (const FetchExtent& extent : fetch.extents) {
      if (extent.axis <= last || extent.axis >= buffer.shape.rank() || fetch.batch_axis >= 0)
        return faults_.Add("bounds", what,
                           "axis " + std::to_string(extent.axis) + " of " + Describe(buffer) + " cannot have an extent of its own");
      last = extent.axis;
      if (extent.fetch < 0 || extent.fetch >= static_cast<int>(entry_.fetches.size()))
        return faults_.Add("names", what, "its extent is fetch " + std::to_string(extent.fetch) + ", which is none");
      const Fetch& number = entry_.fetches[static_cast<size_t>(extent.fetch)];
      if (!number.extents.empty() || number.batch_axis >= 0)
        return faults_.Add("bounds", what, "its extent '" + Escaped(number.name) + "' is no single number");
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
      case EntryKind::kUpdate: return true;
      case EntryKind::kAccumulate: return kind == StateKind::kAccumulator || kind == StateKind::kStatistic;
      case EntryKind::kEval:
      case EntryKind::kPredict: return false;
    }
    return false;
  }

  // Every rank that holds a state writes it when any does, or they would no longer hold the same.
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
        faults_.Add("ranks", Rank(r), "holds state '" + Escaped(tensor.name) + "' and does not change it, as others do");
        break;
      }
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
                    "changes state '" + Escaped(tensor.name) + "' in an entry of a kind that must not");
      }
    }
  }

  const Instruction& At(size_t rank, size_t meeting) const {
    return program(rank).instructions[static_cast<size_t>(facts(rank).communication[meeting])];
  }
  const Group& GroupOf(size_t rank, const Instruction& i) const {
    return plan_.groups[static_cast<size_t>(entry_.ranks[rank].groups[static_cast<size_t>(i.group)])];
  }
  int64_t Bytes(size_t rank, const Instruction& i, size_t use) const {
    return program(rank).buffers[static_cast<size_t>(i.uses[use].buffer)].bytes;
  }
  DType Type(size_t rank, const Instruction& i) const { return program(rank).buffers[static_cast<size_t>(i.uses[0].buffer)].dtype; }

  // Slots lead to groups of which the rank is a member and to other ranks.
  bool CheckBindings() {
    size_t meetings = 0;
    for (size_t r = 0; r < entry_.ranks.size(); ++r) {
      meetings += facts(r).communication.size();
      if (meetings > kMaxMeetings) {
        faults_.Add("ranks", name_, "has more communication than can be checked");
        return false;
      }
      for (size_t k = 0; k < facts(r).communication.size(); ++k) {
        const std::string wrong = BindingFault(r, At(r, k));
        if (wrong.empty()) continue;
        faults_.Add("ranks", Where(r, k), wrong);
        return false;
      }
    }
    return true;
  }

  std::string BindingFault(size_t r, const Instruction& i) const {
    const RankBinding& rank = entry_.ranks[r];
    if (i.kind != InstructionKind::kCollective) {
      const size_t slot = static_cast<size_t>(i.peer);
      const bool bound = slot < rank.peers.size() && rank.peers[slot] >= 0 && rank.peers[slot] < static_cast<int>(entry_.ranks.size());
      return bound && rank.peers[slot] != static_cast<int>(r) ? "" : "peer slot " + std::to_string(i.peer) + " leads to no other rank";
    }
    const size_t slot = static_cast<size_t>(i.group);
    const int group = slot < rank.groups.size() ? rank.groups[slot] : -1;
    if (group < 0 || group >= static_cast<int>(plan_.groups.size())) return "group slot " + std::to_string(i.group) + " leads to no group";
    const std::vector<int>& members = plan_.groups[static_cast<size_t>(group)].ranks;
    if (!IsMember(group, static_cast<int>(r))) return "the rank is no member of group " + std::to_string(group);
    if (i.root >= static_cast<int>(members.size()))
      return "root " + std::to_string(i.root) + " is out of range: the group has " + std::to_string(members.size()) + " members";
    const int64_t small = i.collective == Collective::kReduceScatterSum ? Bytes(r, i, 1) : Bytes(r, i, 0);
    const int64_t large = i.collective == Collective::kReduceScatterSum ? Bytes(r, i, 0) : Bytes(r, i, 1);
    const bool scattered = i.collective == Collective::kReduceScatterSum || i.collective == Collective::kAllGather;
    if (scattered && CheckedMul(small, static_cast<int64_t>(members.size())) != large) {
      return std::to_string(large) + " bytes are not those of " + std::to_string(members.size()) + " members with " +
             std::to_string(small) + " each";
    }
    return "";
  }

  bool IsMember(int group, int rank) const { return members_[static_cast<size_t>(group)].contains(rank); }

  std::string Where(size_t rank, size_t meeting) const {
    return Rank(rank) + (meeting < facts(rank).communication.size() ? ", " + Describe(program(rank), facts(rank).communication[meeting])
                                                                    : ", at its end");
  }

  // On each rank communication is one chain, and what lies between always gets done. So the ranks can be
  // followed from meeting to meeting: one takes place when all its ranks have come to it, whatever else
  // happens; if all ranks reach their ends this way no order of events can keep them from it.
  void Meet() {
    next_.assign(entry_.ranks.size(), 0);
    arrived_.assign(plan_.groups.size(), 0);
    waits_.assign(entry_.ranks.size(), false);
    std::vector<const ProgramFacts*> by_rank;
    for (size_t r = 0; r < entry_.ranks.size(); ++r) by_rank.push_back(&facts(r));
    const bool may_refuse = std::any_of(by_rank.begin(), by_rank.end(), [](const ProgramFacts* rank) { return rank->may_refuse; });
    if (may_refuse && by_rank.size() > 1) heard_.emplace(by_rank);
    std::vector<size_t> moved(entry_.ranks.size());
    for (size_t r = 0; r < moved.size(); ++r) moved[r] = r;
    while (!moved.empty() && !faults_.full()) {
      const size_t rank = moved.back();
      moved.pop_back();
      if (next_[rank] == facts(rank).communication.size()) continue;
      const Instruction& i = At(rank, next_[rank]);
      std::vector<size_t> together = i.kind == InstructionKind::kCollective ? ArriveAtCollective(rank, i) : ArriveAtTransfer(rank, i);
      if (heard_) TellOfRefusals(together);
      for (size_t member : together) {
        ++next_[member];
        moved.push_back(member);
      }
    }
    for (size_t r = 0; r < next_.size(); ++r) {
      if (next_[r] < facts(r).communication.size()) return ReportStuck(r);
    }
    if (heard_) CheckRefusals();
  }

  // What the ranks tell each other by a meeting: in a collective all do, but for a broadcast; a receiver tells nothing, and a sender hears
  // nothing.
  void TellOfRefusals(const std::vector<size_t>& together) {
    std::vector<HeardOfRefusals::Arrival> arrivals;
    for (size_t member : together) {
      const Instruction& i = At(member, next_[member]);
      bool tells = i.kind != InstructionKind::kRecv;
      if (i.kind == InstructionKind::kCollective && i.collective == Collective::kBroadcast)
        tells = GroupOf(member, i).ranks[static_cast<size_t>(i.root)] == static_cast<int>(member);
      arrivals.push_back({member, next_[member], tells, i.kind != InstructionKind::kSend});
    }
    heard_->Meet(arrivals);
  }

  // Copies of the same part of the model change what they keep when all are known to take the batch, where they ever know. One that has
  // no samples looks at nothing but what all of them look at, weights, and goes by its gradients.
  void CheckRefusals() {
    for (size_t s = 0; s < entry_.ranks.size(); ++s) {
      if (facts(s).state_writes.empty() || entry_.ranks[s].shard_length == 0) continue;
      for (size_t r = 0; r < entry_.ranks.size(); ++r) {
        if (r == s || entry_.ranks[r].shard_length == 0 || program(r).place != program(s).place || !heard_->TooLate(s, r)) continue;
        faults_.Add("ranks", Rank(s),
                    "changes state before it has met rank " + std::to_string(r) +
                        ", which may refuse the batch until then: the step would fail and have changed it");
        return;
      }
    }
  }

  // The ranks that meet now that `rank` has come: all of the group, or none.
  std::vector<size_t> ArriveAtCollective(size_t rank, const Instruction& i) {
    const size_t group = static_cast<size_t>(entry_.ranks[rank].groups[static_cast<size_t>(i.group)]);
    const std::vector<int>& members = plan_.groups[group].ranks;
    // A rank can be looked at again before the others have come.
    if (waits_[rank]) return {};
    waits_[rank] = true;
    if (++arrived_[group] < members.size()) return {};
    arrived_[group] = 0;
    for (int member : members) waits_[static_cast<size_t>(member)] = false;
    for (int member : members) CompareCollective(rank, static_cast<size_t>(member));
    return {members.begin(), members.end()};
  }

  void CompareCollective(size_t a, size_t b) {
    const Instruction& x = At(a, next_[a]);
    const Instruction& y = At(b, next_[b]);
    const auto same = [&](size_t k) {
      const Buffer &one = program(a).buffers[static_cast<size_t>(x.uses[k].buffer)],
                   &two = program(b).buffers[static_cast<size_t>(y.uses[k].buffer)];
      return one.dtype == two.dtype && one.bytes == two.bytes && one.layout == two.layout;
    };
    bool equal = x.collective == y.collective && x.root == y.root && x.tag == y.tag && x.uses.size() == y.uses.size();
    for (size_t k = 0; equal && k < x.uses.size() / 2; ++k) equal = same(k);
    if (equal) return;
    faults_.Add("ranks", Where(b, next_[b]),
                "meets " + Where(a, next_[a]) + " with another collective, tag, type, root, layout or size (" +
                    std::to_string(Bytes(b, y, 0)) + " and " + std::to_string(Bytes(a, x, 0)) + " bytes)");
  }

  std::vector<size_t> ArriveAtTransfer(size_t rank, const Instruction& i) {
    const size_t peer = static_cast<size_t>(entry_.ranks[rank].peers[static_cast<size_t>(i.peer)]);
    if (next_[peer] == facts(peer).communication.size()) return {};
    const Instruction& other = At(peer, next_[peer]);
    if (other.kind == InstructionKind::kCollective || other.kind == i.kind) return {};
    if (entry_.ranks[peer].peers[static_cast<size_t>(other.peer)] != static_cast<int>(rank)) return {};
    if (i.tag != other.tag || Type(rank, i) != Type(peer, other) || Bytes(rank, i, 0) != Bytes(peer, other, 0)) {
      faults_.Add("ranks", Where(rank, next_[rank]), "meets " + Where(peer, next_[peer]) + " with another tag, type or size");
    }
    return {rank, peer};
  }

  void ReportStuck(size_t rank) {
    const Instruction& i = At(rank, next_[rank]);
    size_t missing = rank;
    if (i.kind != InstructionKind::kCollective) {
      missing = static_cast<size_t>(entry_.ranks[rank].peers[static_cast<size_t>(i.peer)]);
    } else {
      const int group = entry_.ranks[rank].groups[static_cast<size_t>(i.group)];
      for (int member : GroupOf(rank, i).ranks) {
        const size_t m = static_cast<size_t>(member);
        const bool here = next_[m] < facts(m).communication.size() && At(m, next_[m]).kind == InstructionKind::kCollective &&
                          entry_.ranks[m].groups[static_cast<size_t>(At(m, next_[m]).group)] == group;
        if (!here) missing = m;
      }
    }
    faults_.Add("ranks", Where(rank, next_[rank]), "waits for ever: " + Where(missing, next_[missing]) + ", does not come to it");
  }

  const Plan& plan_;
  const Entry& entry_;
  const std::string name_;
  const std::vector<ProgramFacts>& facts_;
  FaultList& faults_;
  std::vector<size_t> next_;              // by rank: its next meeting
  std::vector<size_t> arrived_;           // by group: members that have come
  std::vector<bool> waits_;               // by rank: it has come to its next meeting
  std::vector<std::set<int>> members_;    // by group
  std::optional<HeardOfRefusals> heard_;  // none where there is nothing to hear
};

}  // namespace

void CheckEntry(const Plan& plan, int entry, const std::vector<ProgramFacts>& facts, FaultList& faults) {
  EntryCheck(plan, entry, facts, faults).Run();
}

}  // namespace gradloom::verify
