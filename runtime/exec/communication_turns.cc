#include "runtime/exec/communication_turns.h"

#include <algorithm>
#include <vector>

namespace gradloom {
namespace {

// The collectives and transfers of a rank, which are one chain on each, and the next of them.
struct Chain {
  const Program* program = nullptr;
  std::vector<int> indices;
  size_t next = 0;
  bool waits = false;  // whether it has reached the next one

  bool done() const { return next == indices.size(); }
  int index() const { return indices[next]; }
  const Instruction& front() const { return program->instructions[static_cast<size_t>(index())]; }
};

class Simulation {
 public:
  Simulation(const Plan& plan, const Entry& entry) : plan_(plan), entry_(entry), arrived_(plan.groups.size(), 0) {
    for (const RankBinding& rank : entry.ranks) {
      Chain& chain = chains_.emplace_back();
      chain.program = &plan.programs[static_cast<size_t>(rank.program)];
      for (size_t i = 0; i < chain.program->instructions.size(); ++i) {
        const InstructionKind kind = chain.program->instructions[i].kind;
        if (kind == InstructionKind::kCollective || kind == InstructionKind::kSend || kind == InstructionKind::kRecv)
          chain.indices.push_back(static_cast<int>(i));
      }
    }
  }

  // Calls `takes_place` for each operation, with its ranks, whose next operation it is.
  template <typename F>
  void Run(F&& takes_place) {
    std::vector<int> moved;
    for (size_t r = chains_.size(); r-- > 0;) moved.push_back(static_cast<int>(r));
    while (!moved.empty()) {
      const int rank = moved.back();
      moved.pop_back();
      if (chain(rank).done() || chain(rank).waits) continue;
      chain(rank).waits = true;
      const std::vector<int> together = Arrive(rank);
      if (together.empty()) continue;
      takes_place(together);
      for (const int member : together) {
        ++chain(member).next;
        chain(member).waits = false;
      }
      moved.insert(moved.end(), together.rbegin(), together.rend());
    }
  }

  // Of the rank's next operation.
  int IndexOf(int rank) const { return chains_[static_cast<size_t>(rank)].index(); }

 private:
  Chain& chain(int rank) { return chains_[static_cast<size_t>(rank)]; }

  // The ranks of the operation that `rank` has reached, if it is the last of them to reach it.
  std::vector<int> Arrive(int rank) {
    const RankBinding& bound = entry_.ranks[static_cast<size_t>(rank)];
    const Instruction& front = chain(rank).front();
    if (front.kind == InstructionKind::kCollective) {
      const auto group = static_cast<size_t>(bound.groups[static_cast<size_t>(front.group)]);
      const std::vector<int>& members = plan_.groups[group].ranks;
      if (++arrived_[group] < members.size()) return {};
      arrived_[group] = 0;
      return members;
    }
    const int peer = bound.peers[static_cast<size_t>(front.peer)];
    if (!chain(peer).waits || chain(peer).front().kind == InstructionKind::kCollective) return {};
    const int theirs = entry_.ranks[static_cast<size_t>(peer)].peers[static_cast<size_t>(chain(peer).front().peer)];
    return theirs == rank ? std::vector<int>{rank, peer} : std::vector<int>{};
  }

  const Plan& plan_;
  const Entry& entry_;
  std::vector<Chain> chains_;    // by rank
  std::vector<size_t> arrived_;  // by group: the members that have reached its next collective
};

}  // namespace

std::map<std::pair<size_t, int>, int> CommunicationTurns(const Plan& plan, const Entry& entry,
                                                         const std::function<bool(size_t rank)>& holds) {
  std::map<std::pair<size_t, int>, int> turns;
  size_t here = 0;
  for (size_t rank = 0; rank < entry.ranks.size(); ++rank) here += holds(rank) ? 1 : 0;
  if (here == entry.ranks.size()) return turns;  // there is no other process
  Simulation simulation(plan, entry);
  int turn = 0;
  simulation.Run([&](const std::vector<int>& ranks) {
    const auto held = std::ranges::count_if(ranks, [&](int rank) { return holds(static_cast<size_t>(rank)); });
    if (held == 0 || held == std::ssize(ranks)) return;
    for (const int rank : ranks) {
      if (holds(static_cast<size_t>(rank))) turns.emplace(std::pair(static_cast<size_t>(rank), simulation.IndexOf(rank)), turn);
    }
    ++turn;
  });
  return turns;
}

}  // namespace gradloom
