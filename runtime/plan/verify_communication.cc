// Checks "ranks": how the ranks of an entry are matched in collectives and transfers, and what these tell them of each other's refusals.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/checked.h"
#include "runtime/plan/verify_scope.h"

namespace gradloom::verify {
namespace {

constexpr size_t kMaxOperations = size_t{1} << 26;

class CommunicationCheck : EntryRanks {
 public:
  explicit CommunicationCheck(const EntryRanks& ranks) : EntryRanks(ranks) {
    const auto shard_of_first = [&](const RankBinding& rank) { return ShardOf(rank) == ShardOf(entry_.ranks[0]); };
    const bool divided = !std::all_of(entry_.ranks.begin(), entry_.ranks.end(), shard_of_first);
    std::map<int, std::vector<int>> holders;  // by place
    for (size_t r = 0; r < entry_.ranks.size(); ++r) holders[program(r).place].push_back(static_cast<int>(r));
    for (const Group& group : plan_.groups) {
      members_.emplace_back(group.ranks.begin(), group.ranks.end());
      std::set<int>& places = whole_places_.emplace_back();
      for (const auto& [place, ranks] : holders) {
        const auto is_member = [&](int rank) { return members_.back().contains(rank); };
        if (std::all_of(ranks.begin(), ranks.end(), is_member)) places.insert(place);
      }
      sample_faults_.push_back(divided ? SampleFault(group) : "");
    }
  }

  void Run() {
    if (CheckBindings()) SimulateRanks();
  }

 private:
  const Instruction& At(size_t rank, size_t operation) const {
    return program(rank).instructions[static_cast<size_t>(facts(rank).communication[operation])];
  }
  const Group& GroupOf(size_t rank, const Instruction& i) const {
    return plan_.groups[static_cast<size_t>(entry_.ranks[rank].groups[static_cast<size_t>(i.group)])];
  }
  const Buffer& Operand(size_t rank, const Instruction& i, size_t use) const {
    return program(rank).buffers[static_cast<size_t>(i.uses[use].buffer)];
  }
  int64_t Bytes(size_t rank, const Instruction& i, size_t use) const { return Operand(rank, i, use).bytes; }

  // Group slots refer to groups that contain the rank, and peer slots to other ranks.
  bool CheckBindings() {
    size_t operations = 0;
    for (size_t r = 0; r < entry_.ranks.size(); ++r) {
      operations += facts(r).communication.size();
      if (operations > kMaxOperations) {
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
      return bound && rank.peers[slot] != static_cast<int>(r) ? "" : "peer slot " + std::to_string(i.peer) + " does not name another rank";
    }
    const size_t slot = static_cast<size_t>(i.group);
    const int group = slot < rank.groups.size() ? rank.groups[slot] : -1;
    if (group < 0 || group >= static_cast<int>(plan_.groups.size()))
      return "group slot " + std::to_string(i.group) + " does not name a group";
    const std::vector<int>& members = plan_.groups[static_cast<size_t>(group)].ranks;
    if (!IsMember(group, static_cast<int>(r))) return "the rank is not a member of group " + std::to_string(group);
    if (i.root >= static_cast<int>(members.size()))
      return "root " + std::to_string(i.root) + " is out of range: the group has " + std::to_string(members.size()) + " members";
    if (i.collective == Collective::kReduceSum) return RootFault(r, i, members);
    if (i.collective != Collective::kReduceScatterSum && i.collective != Collective::kAllGather) return "";
    const int64_t small = i.collective == Collective::kReduceScatterSum ? Bytes(r, i, 1) : Bytes(r, i, 0);
    const int64_t large = i.collective == Collective::kReduceScatterSum ? Bytes(r, i, 0) : Bytes(r, i, 1);
    if (CheckedMul(small, static_cast<int64_t>(members.size())) != large) {
      return std::to_string(large) + " bytes do not match " + std::to_string(members.size()) + " members with " + std::to_string(small) +
             " each";
    }
    return "";
  }

  // A rank has the sums of a reduce whose root it is, and no others, so nothing else can read them.
  std::string RootFault(size_t r, const Instruction& reduce, const std::vector<int>& members) const {
    for (size_t k = 0; k < reduce.roots.size(); ++k) {
      const int root = reduce.roots[k];
      if (root < 0 || root >= static_cast<int>(members.size()))
        return "root " + std::to_string(root) + " is out of range: the group has " + std::to_string(members.size()) + " members";
      const bool mine = members[static_cast<size_t>(root)] == static_cast<int>(r);
      if (mine == (reduce.uses[reduce.roots.size() + k].buffer >= 0)) continue;
      return std::string(mine ? "lacks" : "has") + " the sum of " + Describe(Operand(r, reduce, k)) + ", whose root is rank " +
             std::to_string(members[static_cast<size_t>(root)]);
    }
    return "";
  }

  bool IsMember(int group, int rank) const { return members_[static_cast<size_t>(group)].contains(rank); }

  std::string Where(size_t rank, size_t operation) const {
    return Rank(rank) + (operation < facts(rank).communication.size() ? ", " + Describe(program(rank), facts(rank).communication[operation])
                                                                      : ", at its end");
  }

  // On each rank communication is one chain, and what lies between two operations always completes. So the ranks can be simulated from one
  // operation to the next: an operation takes place when all its ranks have reached it, whatever else happens. If all ranks reach their
  // ends this way, no order of events can prevent it.
  void SimulateRanks() {
    next_.assign(entry_.ranks.size(), 0);
    arrived_.assign(plan_.groups.size(), 0);
    waits_.assign(entry_.ranks.size(), false);
    std::vector<const ProgramFacts*> by_rank;
    for (size_t r = 0; r < entry_.ranks.size(); ++r) by_rank.push_back(&facts(r));
    const bool may_refuse = std::any_of(by_rank.begin(), by_rank.end(), [](const ProgramFacts* rank) { return rank->may_refuse; });
    if (may_refuse && by_rank.size() > 1) acceptance_.emplace(by_rank);
    std::vector<size_t> moved(entry_.ranks.size());
    for (size_t r = 0; r < moved.size(); ++r) moved[r] = r;
    while (!moved.empty() && !faults_.full()) {
      const size_t rank = moved.back();
      moved.pop_back();
      if (next_[rank] == facts(rank).communication.size()) continue;
      const Instruction& i = At(rank, next_[rank]);
      std::vector<size_t> together = i.kind == InstructionKind::kCollective ? ArriveAtCollective(rank, i) : ArriveAtTransfer(rank, i);
      if (acceptance_) ExchangeAcceptance(together);
      for (size_t member : together) {
        ++next_[member];
        moved.push_back(member);
      }
    }
    for (size_t r = 0; r < next_.size(); ++r) {
      if (next_[r] < facts(r).communication.size()) return ReportStuck(r);
    }
    if (acceptance_) CheckRefusals();
    if (!faults_.full() && entry_.ranks.size() > 1) CheckSharing(*this, transfers_);
  }

  // What ranks learn of each other in an operation: in a collective all members learn of all others, except that a broadcast only informs
  // of its root, and a reduce only its roots; a receiver tells nothing, and a sender learns nothing.
  void ExchangeAcceptance(const std::vector<size_t>& together) {
    std::vector<AcceptanceTracker::Arrival> arrivals;
    for (size_t member : together) {
      const Instruction& i = At(member, next_[member]);
      bool sends = i.kind != InstructionKind::kRecv, receives = i.kind != InstructionKind::kSend;
      if (i.kind == InstructionKind::kCollective && i.collective == Collective::kBroadcast)
        sends = GroupOf(member, i).ranks[static_cast<size_t>(i.root)] == static_cast<int>(member);
      if (i.kind == InstructionKind::kCollective && i.collective == Collective::kReduceSum)
        receives =
            std::any_of(i.uses.begin(), i.uses.end(), [](const Use& use) { return use.access == Access::kWrite && use.buffer >= 0; });
      arrivals.push_back({member, next_[member], sends, receives});
    }
    acceptance_->Exchange(arrivals);
  }

  // Replicas of the same part of the model may change state only once all of them are known to accept the batch, as far as they ever learn
  // it. A replica without samples checks only what all of them check (weights), and relies on their gradients.
  void CheckRefusals() {
    for (size_t s = 0; s < entry_.ranks.size(); ++s) {
      if (facts(s).state_writes.empty() || entry_.ranks[s].shard_length == 0) continue;
      for (size_t r = 0; r < entry_.ranks.size(); ++r) {
        if (r == s || entry_.ranks[r].shard_length == 0 || !RefuseFor(r, s) || !acceptance_->ChangesTooEarly(s, r)) continue;
        faults_.Add("ranks", Rank(s),
                    "changes state before it has synchronized with rank " + std::to_string(r) +
                        ", which may refuse the batch until then: the step could fail after changing it");
        return;
      }
    }
  }

  // Whether a refusal by rank r must keep rank s from changing state: whether both hold a parameter, and so the same part of the model.
  // Ranks of several places that have the same samples refuse alike.
  bool RefuseFor(size_t r, size_t s) {
    const int a = program(r).place, b = program(s).place;
    if (a == b) return true;
    if (ShardOf(entry_.ranks[r]) == ShardOf(entry_.ranks[s])) return false;
    const auto [known, fresh] = same_parameters_.try_emplace(std::minmax(a, b), false);
    if (fresh) {
      known->second = std::any_of(plan_.state.begin(), plan_.state.end(), [&](const StateTensor& state) {
        return state.kind == StateKind::kParameter && state.in_place(a) && state.in_place(b);
      });
    }
    return known->second;
  }

  // The ranks that are matched now that `rank` has arrived: the whole group, or none.
  std::vector<size_t> ArriveAtCollective(size_t rank, const Instruction& i) {
    const size_t group = static_cast<size_t>(entry_.ranks[rank].groups[static_cast<size_t>(i.group)]);
    const std::vector<int>& members = plan_.groups[group].ranks;
    // A rank may be visited again before the others have arrived.
    if (waits_[rank]) return {};
    waits_[rank] = true;
    if (++arrived_[group] < members.size()) return {};
    arrived_[group] = 0;
    for (int member : members) waits_[static_cast<size_t>(member)] = false;
    for (int member : members) {
      CompareCollective(rank, static_cast<size_t>(member));
      CheckSumsOverAll(static_cast<size_t>(member), group, i);
    }
    if (i.collective == Collective::kBroadcast) CheckPassesOn(static_cast<size_t>(members[static_cast<size_t>(i.root)]));
    return {members.begin(), members.end()};
  }

  static std::pair<int64_t, int64_t> ShardOf(const RankBinding& rank) { return {rank.shard_start, rank.shard_length}; }

  // Why sums over the group do not count every sample of the batch once, or "". Not for ranks that all have the same samples: their sums
  // are of parts that are no samples, such as accumulated gradients.
  std::string SampleFault(const Group& group) const {
    std::vector<std::pair<int64_t, int64_t>> shards;
    for (int rank : group.ranks) {
      const RankBinding& bound = entry_.ranks[static_cast<size_t>(rank)];
      if (bound.shard_length > 0) shards.push_back(ShardOf(bound));
    }
    std::sort(shards.begin(), shards.end());
    int64_t covered = 0;
    for (const auto& [start, length] : shards) {
      if (start < covered) return "counts the samples from " + std::to_string(start) + " several times";
      // Shards past the end of the batch have been reported.
      if (start > covered || length > entry_.batch - covered) break;
      covered += length;
    }
    return covered == entry_.batch ? "" : "lacks the samples from " + std::to_string(covered);
  }

  // What is summed are parts of one gradient or statistic, of which each rank with that part of the model has one, and which together come
  // from all samples.
  void CheckSumsOverAll(size_t rank, size_t group, const Instruction& i) {
    if (!Sums(i)) return;
    const bool whole = whole_places_[group].contains(program(rank).place);
    if (whole && sample_faults_[group].empty()) return;
    faults_.Add("ranks", Where(rank, next_[rank]),
                "sums over group " + std::to_string(group) + ", which " +
                    (whole ? sample_faults_[group] : "lacks ranks that hold the same part of the model"));
  }

  // A broadcast of a state where it is passes on its next value, which the root has given it before.
  void CheckPassesOn(size_t root) {
    const int index = facts(root).communication[next_[root]];
    const Instruction& i = program(root).instructions[static_cast<size_t>(index)];
    const Buffer& passed = Operand(root, i, 1);
    if (passed.arena != Arena::kState || !SamePlace(Operand(root, i, 0), passed)) return;
    const auto& writes = facts(root).state_writes;
    const bool given = std::any_of(writes.begin(), writes.end(), [&](const auto& write) {
      return write.second != index && plan_.state[static_cast<size_t>(write.first)].offset == passed.offset;
    });
    if (!given)
      faults_.Add("ranks", Where(root, next_[root]), "broadcasts a state that the rank itself does not change: " + Describe(passed));
  }

  void CompareCollective(size_t a, size_t b) {
    const Instruction& x = At(a, next_[a]);
    const Instruction& y = At(b, next_[b]);
    const auto same = [&](size_t k) { return HoldTheSame(Operand(a, x, k), Operand(b, y, k)); };
    bool equal = x.collective == y.collective && x.root == y.root && x.roots == y.roots && x.tag == y.tag && x.uses.size() == y.uses.size();
    for (size_t k = 0; equal && k < x.uses.size() / 2; ++k) equal = same(k);
    if (equal) return;
    faults_.Add("ranks", Where(b, next_[b]),
                "is matched with " + Where(a, next_[a]) + ", which has another collective, tag, type, root, layout or size (" +
                    std::to_string(Bytes(b, y, 0)) + " and " + std::to_string(Bytes(a, x, 0)) + " bytes)");
  }

  std::vector<size_t> ArriveAtTransfer(size_t rank, const Instruction& i) {
    const size_t peer = static_cast<size_t>(entry_.ranks[rank].peers[static_cast<size_t>(i.peer)]);
    if (next_[peer] == facts(peer).communication.size()) return {};
    const Instruction& other = At(peer, next_[peer]);
    if (other.kind == InstructionKind::kCollective || other.kind == i.kind) return {};
    if (entry_.ranks[peer].peers[static_cast<size_t>(other.peer)] != static_cast<int>(rank)) return {};
    if (i.tag != other.tag || !HoldTheSame(Operand(rank, i, 0), Operand(peer, other, 0))) {
      faults_.Add("ranks", Where(rank, next_[rank]),
                  "is matched with " + Where(peer, next_[peer]) + ", which has another tag, type, layout or size");
    }
    const int own = facts(rank).communication[next_[rank]], others = facts(peer).communication[next_[peer]];
    transfers_.push_back(i.kind == InstructionKind::kSend ? Transfer{rank, peer, own, others} : Transfer{peer, rank, others, own});
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
    faults_.Add("ranks", Where(rank, next_[rank]), "waits forever: " + Where(missing, next_[missing]) + ", never matches it");
  }

  std::vector<size_t> next_;                             // by rank: its next communication
  std::vector<size_t> arrived_;                          // by group: the number of members that have arrived
  std::vector<bool> waits_;                              // by rank: whether it has arrived at its next communication
  std::vector<Transfer> transfers_;                      // that have taken place
  std::vector<std::set<int>> members_;                   // by group
  std::vector<std::set<int>> whole_places_;              // by group: the places of which it has all ranks
  std::vector<std::string> sample_faults_;               // by group: SampleFault
  std::map<std::pair<int, int>, bool> same_parameters_;  // of places
  std::optional<AcceptanceTracker> acceptance_;          // nullopt if there are no refusals to learn of
};

}  // namespace

void CheckCommunication(const EntryRanks& ranks) { CommunicationCheck(ranks).Run(); }

}  // namespace gradloom::verify
