#include "tests/verify/rank_mutations.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace gradloom {
namespace {

using Visit = std::function<void(const Plan& mutant, const std::string& site)>;
using Kind = InstructionKind;

// The collectives and transfers of a program.
std::vector<size_t> CommunicationOf(const Program& program) {
  std::vector<size_t> communication;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Kind kind = program.instructions[i].kind;
    if (kind == Kind::kCollective || kind == Kind::kSend || kind == Kind::kRecv) communication.push_back(i);
  }
  return communication;
}

// Visits mutants in which a collective or transfer changes on one rank only, which gets a copy of its program.
template <typename F>
void EachCommunicationOfARank(const Plan& plan, const Visit& visit, F&& change) {
  if (plan.entries[0].ranks.size() < 2) return;
  for (size_t r = 0; r < plan.entries[0].ranks.size(); ++r) {
    const Program& shared = plan.programs[static_cast<size_t>(plan.entries[0].ranks[r].program)];
    const std::vector<size_t> communication = CommunicationOf(shared);
    for (const size_t i : communication) {
      if (!Sampled(communication.size())) continue;
      Plan mutant = plan;
      mutant.entries[0].ranks[r].program = static_cast<int>(mutant.programs.size());
      mutant.programs.push_back(shared);
      if (change(mutant.programs.Mutable(mutant.programs.size() - 1), i))
        visit(mutant, "rank " + std::to_string(r) + " #" + std::to_string(i));
    }
  }
}

// Whether a launch of a rank writes a state of which each rank has the whole.
bool Updates(const Plan& plan, size_t rank, const Instruction& launch, const StateTensor& state) {
  const Program& program = plan.programs[static_cast<size_t>(plan.entries[0].ranks[rank].program)];
  if (launch.kind != Kind::kLaunch || state.partial || !state.in_place(program.place)) return false;
  return std::any_of(launch.uses.begin(), launch.uses.end(), [&](const Use& use) {
    if (use.access != Access::kWrite || use.buffer < 0) return false;
    const Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
    return buffer.arena == Arena::kState && buffer.offset == state.offset && buffer.bytes > 0;
  });
}

// Whether a launch of a rank writes states, and another rank computes each of them as well. A rank to which the optimizer's state was
// shared out may compute anything: the others receive the same.
bool UpdatesShared(const Plan& plan, size_t rank, const Instruction& launch) {
  bool updates = false;
  for (const StateTensor& state : plan.state) {
    if (!Updates(plan, rank, launch, state)) continue;
    updates = true;
    bool is_computed = false;
    for (size_t other = 0; other < plan.num_ranks() && !is_computed; ++other) {
      const Program& program = plan.programs[static_cast<size_t>(plan.entries[0].ranks[other].program)];
      is_computed = other != rank && std::any_of(program.instructions.begin(), program.instructions.end(),
                                                 [&](const Instruction& of_other) { return Updates(plan, other, of_other, state); });
    }
    if (!is_computed) return false;
  }
  return updates;
}

// Visits mutants in which an update changes on one rank only, which gets a copy of its program.
template <typename F>
void EachUpdateOfARank(const Plan& plan, const Visit& visit, F&& change) {
  for (size_t r = 0; r < plan.num_ranks(); ++r) {
    const Program& shared = plan.programs[static_cast<size_t>(plan.entries[0].ranks[r].program)];
    for (size_t i = 0; i < shared.instructions.size(); ++i) {
      if (!UpdatesShared(plan, r, shared.instructions[i]) || !Sampled(shared.instructions.size())) continue;
      Plan mutant = plan;
      mutant.entries[0].ranks[r].program = static_cast<int>(mutant.programs.size());
      mutant.programs.push_back(shared);
      if (change(mutant.programs.Mutable(mutant.programs.size() - 1), i))
        visit(mutant, "rank " + std::to_string(r) + " #" + std::to_string(i));
    }
  }
}

// Lets an update read what another one of the same type reads at the same position.
bool ReadAnother(Program& program, size_t i) {
  std::vector<Use>& uses = program.instructions[i].uses;
  const auto at = [&](const Use& use) -> const Buffer& { return program.buffers[static_cast<size_t>(use.buffer)]; };
  for (size_t j = 0; j < program.instructions.size(); ++j) {
    const Instruction& other = program.instructions[j];
    if (j == i || other.op != program.instructions[i].op || !WritesState(program, other)) continue;
    for (size_t k = 0; k < std::min(uses.size(), other.uses.size()); ++k) {
      const Use &own = uses[k], &another = other.uses[k];
      if (own.access != Access::kRead || another.access != Access::kRead || own.buffer < 0 || another.buffer < 0) continue;
      if (own.buffer == another.buffer || at(own).arena != Arena::kTransient || at(another).arena != Arena::kTransient) continue;
      if (at(own).operand() != at(another).operand()) continue;
      uses[k].buffer = another.buffer;
      return true;
    }
  }
  return false;
}

// Some members of a group leave it, and make another one.
Plan WithDividedGroup(const Plan& plan, size_t group, const std::vector<int>& leaving) {
  Plan mutant = plan;
  std::vector<int>& ranks = mutant.groups[group].ranks;
  std::erase_if(ranks, [&](int rank) { return std::find(leaving.begin(), leaving.end(), rank) != leaving.end(); });
  mutant.groups.push_back({leaving});
  for (Entry& entry : mutant.entries) {
    for (int rank : leaving) {
      std::vector<int>& bound = entry.ranks[static_cast<size_t>(rank)].groups;
      std::replace(bound.begin(), bound.end(), static_cast<int>(group), static_cast<int>(plan.groups.size()));
    }
  }
  return mutant;
}

// The collectives of a rank in its group, which are those of the other members at the same indices.
std::vector<size_t> CollectivesIn(const Plan& plan, size_t rank, int group) {
  const RankBinding& bound = plan.entries[0].ranks[rank];
  const Program& program = plan.programs[static_cast<size_t>(bound.program)];
  std::vector<size_t> collectives;
  for (const size_t i : CommunicationOf(program)) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.kind == Kind::kCollective && bound.groups[static_cast<size_t>(instruction.group)] == group) collectives.push_back(i);
  }
  return collectives;
}

// Puts the same all-reduce, in place, behind an all-reduce, and lets everything else read its results. Returns false if these are parts.
bool Repeat(Plan& mutant, size_t program_index, size_t i) {
  Program& program = mutant.programs.Mutable(program_index);
  Instruction again = program.instructions[i];
  if (again.collective != Collective::kAllReduceSum) return false;
  const size_t operands = again.uses.size() / 2;
  for (size_t k = 0; k < operands; ++k) {
    const int first = again.uses[operands + k].buffer, second = static_cast<int>(program.buffers.size());
    if (program.buffers[static_cast<size_t>(first)].whole >= 0) return false;
    for (size_t j = i + 1; j < program.instructions.size(); ++j) {
      for (Use& use : program.instructions[j].uses) use.buffer = use.buffer == first ? second : use.buffer;
    }
    for (Buffer& part : program.buffers) part.whole = part.whole == first ? second : part.whole;
    program.buffers.push_back(program.buffers[static_cast<size_t>(first)]);
    for (Entry& entry : mutant.entries) {
      for (size_t r = 0; r < entry.ranks.size(); ++r) {
        if (entry.ranks[r].program != static_cast<int>(program_index)) continue;
        for (int& fetched : entry.ranks[r].fetches) fetched = fetched == first ? second : fetched;
        for (size_t f = 0; r == 0 && f < entry.fetches.size(); ++f) {
          int& fetched = entry.fetches[f].buffer;
          fetched = fetched == first ? second : fetched;
        }
      }
    }
    again.uses[k].buffer = first;
    again.uses[operands + k].buffer = second;
  }
  program.instructions.insert(program.instructions.begin() + static_cast<std::ptrdiff_t>(i) + 1, std::move(again));
  return true;
}

bool Erase(Program& program, size_t i) {
  program.instructions.erase(program.instructions.begin() + static_cast<std::ptrdiff_t>(i));
  return true;
}

const MutationKind kKinds[] = {
    {"lost collective or transfer of a rank", [](const Plan& plan, const Visit& visit) { EachCommunicationOfARank(plan, visit, Erase); }},
    {"exchanged collectives of a rank",
     [](const Plan& plan, const Visit& visit) {
       EachCommunicationOfARank(plan, visit, [](Program& p, size_t i) {
         for (const size_t k : CommunicationOf(p)) {
           if (k <= i) continue;
           std::swap(p.instructions[i], p.instructions[k]);
           return true;
         }
         return false;
       });
     }},
    {"another collective of a rank",
     [](const Plan& plan, const Visit& visit) {
       EachCommunicationOfARank(plan, visit, [](Program& p, size_t i) {
         Collective& c = p.instructions[i].collective;
         c = c == Collective::kAllReduceSum ? Collective::kBroadcast : Collective::kAllReduceSum;
         return p.instructions[i].kind == Kind::kCollective;
       });
     }},
    {"another root of a rank",
     [](const Plan& plan, const Visit& visit) {
       EachCommunicationOfARank(plan, visit, [](Program& p, size_t i) {
         Instruction& instruction = p.instructions[i];
         if (!instruction.roots.empty())
           return std::rotate(instruction.roots.begin(), instruction.roots.end() - 1, instruction.roots.end()), true;
         return instruction.collective == Collective::kBroadcast && (instruction.root += 1, true);
       });
     }},
    {"sum for another rank",
     [](const Plan& plan, const Visit& visit) {
       EachCommunicationOfARank(plan, visit, [](Program& p, size_t i) {
         Instruction& reduce = p.instructions[i];
         for (size_t k = 0; k < reduce.roots.size(); ++k) {
           Use& sum = reduce.uses[reduce.roots.size() + k];
           if (sum.buffer >= 0) continue;
           // In place, so that whatever reads the rank's own part afterwards reads the sum.
           sum.buffer = static_cast<int>(p.buffers.size());
           p.buffers.push_back(p.buffers[static_cast<size_t>(reduce.uses[k].buffer)]);
           return true;
         }
         return false;
       });
     }},
    {"another group of a rank",
     [](const Plan& plan, const Visit& visit) {
       EachCommunicationOfARank(plan, visit, [](Program& p, size_t i) {
         return p.instructions[i].kind == Kind::kCollective && (p.instructions[i].group += 1, true);
       });
     }},
    {"another peer of a rank",
     [](const Plan& plan, const Visit& visit) {
       EachCommunicationOfARank(plan, visit, [&](Program& p, size_t i) {
         Instruction& transfer = p.instructions[i];
         if (transfer.kind == Kind::kCollective) return false;
         const auto peers = static_cast<int>(plan.entries[0].ranks[0].peers.size());
         return peers > 1 && (transfer.peer = (transfer.peer + 1) % peers, true);
       });
     }},
    {"another tag of a rank",
     [](const Plan& plan, const Visit& visit) {
       EachCommunicationOfARank(plan, visit, [](Program& p, size_t i) { return p.instructions[i].tag += 1, true; });
     }},
    {"another layout of a transfer of a rank",
     [](const Plan& plan, const Visit& visit) {
       EachCommunicationOfARank(plan, visit, [](Program& p, size_t i) {
         Buffer& buffer = p.buffers[static_cast<size_t>(p.instructions[i].uses[0].buffer)];
         // The same bytes in another order.
         if (p.instructions[i].kind == Kind::kCollective || !buffer.layout.plain() || buffer.shape.rank() == 0 || buffer.shape[0] == 0)
           return false;
         buffer.layout.blocks = {{0, static_cast<int>(buffer.shape[0])}};
         return true;
       });
     }},
    {"another operand of an update of a rank", [](const Plan& plan, const Visit& visit) { EachUpdateOfARank(plan, visit, ReadAnother); }},
    {"another attribute of an update of a rank",
     [](const Plan& plan, const Visit& visit) {
       EachUpdateOfARank(plan, visit, [](Program& p, size_t i) { return p.instructions[i].attributes.set("another", int64_t{1}), true; });
     }},
    {"another program of a rank",
     [](const Plan& plan, const Visit& visit) {
       for (size_t r = 0; r < plan.num_ranks(); ++r) {
         std::set<int> others;
         for (const RankBinding& rank : plan.entries[0].ranks) others.insert(rank.program);
         others.erase(plan.entries[0].ranks[r].program);
         for (int program : others) {
           Plan mutant = plan;
           mutant.entries[0].ranks[r].program = program;
           visit(mutant, "rank " + std::to_string(r) + " program " + std::to_string(program));
         }
       }
     }},
    {"divided group",
     [](const Plan& plan, const Visit& visit) {
       for (size_t g = 0; g < plan.groups.size(); ++g) {
         const std::vector<int>& ranks = plan.groups[g].ranks;
         if (ranks.size() < 2) continue;
         const auto half = static_cast<std::ptrdiff_t>(ranks.size() / 2);
         visit(WithDividedGroup(plan, g, {ranks.begin() + half, ranks.end()}), "group " + std::to_string(g));
       }
     }},
    {"rank of its own group",
     [](const Plan& plan, const Visit& visit) {
       for (size_t g = 0; g < plan.groups.size(); ++g) {
         const std::vector<int>& ranks = plan.groups[g].ranks;
         for (int rank : ranks) {
           if (ranks.size() < 2 || !Sampled(ranks.size())) continue;
           visit(WithDividedGroup(plan, g, {rank}), "group " + std::to_string(g) + " rank " + std::to_string(rank));
         }
       }
     }},
    {"sum summed again",
     [](const Plan& plan, const Visit& visit) {
       for (size_t g = 0; g < plan.groups.size(); ++g) {
         const std::vector<int>& ranks = plan.groups[g].ranks;
         if (ranks.size() < 2) continue;
         const size_t count = CollectivesIn(plan, static_cast<size_t>(ranks[0]), static_cast<int>(g)).size();
         for (size_t k = 0; k < count; ++k) {
           if (!Sampled(count)) continue;
           Plan mutant = plan;
           std::set<size_t> changed;
           bool repeated = true;
           for (int rank : ranks) {
             const auto program = static_cast<size_t>(plan.entries[0].ranks[static_cast<size_t>(rank)].program);
             if (!changed.insert(program).second) continue;
             repeated &= Repeat(mutant, program, CollectivesIn(plan, static_cast<size_t>(rank), static_cast<int>(g))[k]);
           }
           if (repeated) visit(mutant, "group " + std::to_string(g) + " collective " + std::to_string(k));
         }
       }
     }},
    {"peers of another rank",
     [](const Plan& plan, const Visit& visit) {
       const size_t ranks = plan.entries[0].ranks.size();
       for (size_t r = 0; r < ranks; ++r) {
         Plan mutant = plan;
         auto& peers = mutant.entries[0].ranks[r].peers;
         if (peers.size() < 2) continue;
         std::rotate(peers.begin(), peers.begin() + 1, peers.end());
         visit(mutant, "rank " + std::to_string(r));
       }
     }},
    {"state in another place",
     [](const Plan& plan, const Visit& visit) {
       for (size_t s = 0; plan.places.size() > 1 && s < plan.state.size(); ++s) {
         if (plan.state[s].places.size() != 1 || !Sampled(plan.state.size())) continue;
         Plan mutant = plan;
         int& place = mutant.state[s].places[0];
         place = (place + 1) % static_cast<int>(plan.places.size());
         visit(mutant, "state " + std::to_string(s));
       }
     }},
    {"another shard",
     [](const Plan& plan, const Visit& visit) {
       for (size_t r = 0; r < plan.entries[0].ranks.size(); ++r) {
         Plan mutant = plan;
         mutant.entries[0].ranks[r].shard_length += 1;
         visit(mutant, "rank " + std::to_string(r));
       }
     }},
};

}  // namespace

std::span<const MutationKind> RankMutationKinds() { return kKinds; }

}  // namespace gradloom
