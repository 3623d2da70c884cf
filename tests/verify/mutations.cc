#include "tests/verify/mutations.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace gradloom {
namespace {

using Visit = std::function<void(const Plan& mutant, const std::string& site)>;
using Kind = InstructionKind;

size_t sampled_places = 0;
std::mt19937_64 sampling;

// Whether this one of `places` places is in the sample.
bool Sampled(size_t places) { return sampled_places == 0 || sampling() % std::max<size_t>(places, 1) < sampled_places; }

// The path to a program of a plan or to a body within one, by instruction and body.
struct Way {
  size_t program = 0;
  std::vector<std::pair<size_t, size_t>> bodies;

  const Program& In(const Plan& plan) const {
    const Program* at = &plan.programs[program];
    for (const auto& [instruction, body] : bodies) at = &at->instructions[instruction].bodies[body];
    return *at;
  }
  Program& In(Plan& plan) const {
    Program* at = &plan.programs.Mutable(program);
    for (const auto& [instruction, body] : bodies) at = &at->instructions[instruction].bodies[body];
    return *at;
  }
  std::string ToString() const {
    std::string text = "program " + std::to_string(program);
    for (const auto& [instruction, body] : bodies) text += " #" + std::to_string(instruction) + " body " + std::to_string(body);
    return text;
  }
};

std::vector<Way> WaysOf(const Plan& plan) {
  std::vector<Way> ways;
  for (size_t p = 0; p < plan.programs.size(); ++p) ways.push_back({p, {}});
  for (size_t w = 0; w < ways.size(); ++w) {
    const Program& program = ways[w].In(plan);
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      for (size_t k = 0; k < program.instructions[i].bodies.size(); ++k) {
        Way inner = ways[w];
        inner.bodies.emplace_back(i, k);
        ways.push_back(std::move(inner));
      }
    }
  }
  return ways;
}

// Visits one mutant for each instruction of a program or body in which `change` returns that it changed something.
template <typename F>
void EachInstruction(const Plan& plan, const Visit& visit, F&& change) {
  for (const Way& way : WaysOf(plan)) {
    const size_t count = way.In(plan).instructions.size();
    for (size_t i = 0; i < count; ++i) {
      if (!Sampled(count)) continue;
      Plan mutant = plan;
      if (change(mutant, way.In(mutant), i)) visit(mutant, way.ToString() + " #" + std::to_string(i));
    }
  }
}

template <typename F>
void EachOfKind(const Plan& plan, const Visit& visit, Kind kind, F&& change) {
  EachInstruction(plan, visit, [&](Plan& mutant, Program& program, size_t i) {
    return program.instructions[i].kind == kind && change(mutant, program, i);
  });
}

template <typename F>
void EachBuffer(const Plan& plan, const Visit& visit, F&& change) {
  for (const Way& way : WaysOf(plan)) {
    const size_t count = way.In(plan).buffers.size();
    for (size_t b = 0; b < count; ++b) {
      if (!Sampled(count)) continue;
      Plan mutant = plan;
      Program& program = way.In(mutant);
      if (change(program, program.buffers[b])) visit(mutant, way.ToString() + " %" + std::to_string(b));
    }
  }
}

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

void Move(Program& program, size_t from, size_t to) {
  const Instruction moved = program.instructions[from];
  program.instructions.erase(program.instructions.begin() + static_cast<std::ptrdiff_t>(from));
  program.instructions.insert(program.instructions.begin() + static_cast<std::ptrdiff_t>(to), moved);
}

bool Exchange(Plan&, Program& program, size_t i) {
  if (i + 1 >= program.instructions.size()) return false;
  std::swap(program.instructions[i], program.instructions[i + 1]);
  return true;
}

bool Transient(const Buffer& buffer) { return buffer.arena == Arena::kTransient && buffer.bytes > 0; }

const MutationKind kKinds[] = {
    {"dropped wait",
     [](const Plan& plan, const Visit& visit) {
       EachOfKind(plan, visit, Kind::kWait, [](Plan&, Program& p, size_t i) { return Erase(p, i); });
     }},
    {"dropped record",
     [](const Plan& plan, const Visit& visit) {
       EachOfKind(plan, visit, Kind::kRecord, [](Plan&, Program& p, size_t i) { return Erase(p, i); });
     }},
    {"wait for another event",
     [](const Plan& plan, const Visit& visit) {
       EachOfKind(plan, visit, Kind::kWait, [](Plan&, Program& p, size_t i) {
         p.instructions[i].event = (p.instructions[i].event + 1) % p.num_events;
         return p.num_events > 1;
       });
     }},
    {"another event recorded",
     [](const Plan& plan, const Visit& visit) {
       EachOfKind(plan, visit, Kind::kRecord, [](Plan&, Program& p, size_t i) {
         p.instructions[i].event = (p.instructions[i].event + 1) % p.num_events;
         return p.num_events > 1;
       });
     }},
    {"event out of range",
     [](const Plan& plan, const Visit& visit) {
       EachOfKind(plan, visit, Kind::kWait, [](Plan&, Program& p, size_t i) { return p.instructions[i].event = p.num_events, true; });
     }},
    {"early record",
     [](const Plan& plan, const Visit& visit) {
       EachOfKind(plan, visit, Kind::kRecord, [](Plan&, Program& p, size_t i) { return i > 0 && (Move(p, i, i - 1), true); });
     }},
    {"late wait",
     [](const Plan& plan, const Visit& visit) {
       EachOfKind(plan, visit, Kind::kWait,
                  [](Plan&, Program& p, size_t i) { return i + 1 < p.instructions.size() && (Move(p, i, i + 1), true); });
     }},
    {"wrong stream",
     [](const Plan& plan, const Visit& visit) {
       EachInstruction(plan, visit, [](Plan&, Program& p, size_t i) {
         p.instructions[i].stream = (p.instructions[i].stream + 1) % static_cast<int>(p.streams.size());
         return p.streams.size() > 1;
       });
     }},
    {"stream out of range",
     [](const Plan& plan, const Visit& visit) {
       EachInstruction(plan, visit,
                       [](Plan&, Program& p, size_t i) { return p.instructions[i].stream = static_cast<int>(p.streams.size()), true; });
     }},
    {"wrong device",
     [](const Plan& plan, const Visit& visit) {
       for (size_t p = 0; p < plan.programs.size(); ++p) {
         for (size_t s = 0; s < plan.programs[p].streams.size(); ++s) {
           Plan mutant = plan;
           mutant.programs.Mutable(p).streams[s].device = 1;
           visit(mutant, "program " + std::to_string(p) + " stream " + std::to_string(s));
         }
       }
     }},
    {"lost instruction",
     [](const Plan& plan, const Visit& visit) {
       EachInstruction(plan, visit, [](Plan&, Program& p, size_t i) {
         return p.instructions[i].kind != Kind::kRecord && p.instructions[i].kind != Kind::kWait && Erase(p, i);
       });
     }},
    {"duplicated instruction",
     [](const Plan& plan, const Visit& visit) {
       EachInstruction(plan, visit, [](Plan&, Program& p, size_t i) {
         const Instruction copy = p.instructions[i];
         p.instructions.insert(p.instructions.begin() + static_cast<std::ptrdiff_t>(i), copy);
         return true;
       });
     }},
    {"exchanged neighbours", [](const Plan& plan, const Visit& visit) { EachInstruction(plan, visit, Exchange); }},
    {"update first",
     [](const Plan& plan, const Visit& visit) {
       EachInstruction(plan, visit,
                       [](Plan&, Program& p, size_t i) { return i > 0 && WritesState(p, p.instructions[i]) && (Move(p, i, 0), true); });
     }},
    {"instruction first",
     [](const Plan& plan, const Visit& visit) {
       EachInstruction(plan, visit, [](Plan&, Program& p, size_t i) { return i > 0 && (Move(p, i, 0), true); });
     }},
    {"instruction last",
     [](const Plan& plan, const Visit& visit) {
       EachInstruction(plan, visit, [](Plan&, Program& p, size_t i) {
         return i + 1 < p.instructions.size() && (Move(p, i, p.instructions.size() - 1), true);
       });
     }},
    {"lost operand",
     [](const Plan& plan, const Visit& visit) {
       EachInstruction(plan, visit, [](Plan&, Program& p, size_t i) {
         return !p.instructions[i].uses.empty() && (p.instructions[i].uses.pop_back(), true);
       });
     }},
    {"read taken for write",
     [](const Plan& plan, const Visit& visit) {
       EachInstruction(plan, visit, [](Plan&, Program& p, size_t i) {
         return !p.instructions[i].uses.empty() && (p.instructions[i].uses[0].access = Access::kWrite, p.instructions[i].uses.size() > 1);
       });
     }},
    {"unknown kernel",
     [](const Plan& plan, const Visit& visit) {
       EachOfKind(plan, visit, Kind::kLaunch, [](Plan&, Program& p, size_t i) { return p.instructions[i].kernel += "?", true; });
     }},
    {"another operator",
     [](const Plan& plan, const Visit& visit) {
       EachOfKind(plan, visit, Kind::kLaunch, [](Plan&, Program& p, size_t i) { return p.instructions[i].op += "?", true; });
     }},
    {"moved buffer",
     [](const Plan& plan, const Visit& visit) {
       EachBuffer(plan, visit, [](Program&, Buffer& b) { return Transient(b) && (b.offset += 64, true); });
     }},
    {"buffer moved back",
     [](const Plan& plan, const Visit& visit) {
       EachBuffer(plan, visit, [](Program&, Buffer& b) { return Transient(b) && b.offset >= 64 && (b.offset -= 64, true); });
     }},
    {"misaligned buffer",
     [](const Plan& plan, const Visit& visit) {
       EachBuffer(plan, visit, [](Program&, Buffer& b) { return Transient(b) && (b.offset += 4, true); });
     }},
    {"early reuse",
     [](const Plan& plan, const Visit& visit) {
       for (size_t p = 0; p < plan.programs.size(); ++p) {
         for (size_t b = 0; b < plan.programs[p].buffers.size(); ++b) {
           for (size_t other = 0; other < plan.programs[p].buffers.size(); ++other) {
             if (!Sampled(plan.programs[p].buffers.size() * plan.programs[p].buffers.size())) continue;
             Plan mutant = plan;
             Buffer& moved = mutant.programs.Mutable(p).buffers[b];
             const Buffer& taken = mutant.programs[p].buffers[other];
             if (!Transient(moved) || !Transient(taken) || moved.offset == taken.offset) continue;
             moved.offset = taken.offset;
             visit(mutant, "program " + std::to_string(p) + " %" + std::to_string(b) + " on %" + std::to_string(other));
           }
         }
       }
     }},
    {"shrunk buffer",
     [](const Plan& plan, const Visit& visit) {
       EachBuffer(plan, visit, [](Program&, Buffer& b) { return b.bytes > 4 && (b.bytes -= 4, true); });
     }},
    {"grown buffer",
     [](const Plan& plan, const Visit& visit) {
       EachBuffer(plan, visit, [](Program&, Buffer& b) { return b.bytes > 0 && b.dtype != DType::kUndefined && (b.bytes += 4, true); });
     }},
    {"another dtype",
     [](const Plan& plan, const Visit& visit) {
       EachBuffer(plan, visit, [](Program&, Buffer& b) { return b.dtype == DType::kFloat32 && (b.dtype = DType::kInt32, true); });
     }},
    {"another shape",
     [](const Plan& plan, const Visit& visit) {
       EachBuffer(plan, visit, [](Program&, Buffer& b) { return b.shape.rank() > 0 && (b.shape[0] += 1, true); });
     }},
    {"another layout",
     [](const Plan& plan, const Visit& visit) {
       EachBuffer(plan, visit, [](Program&, Buffer& b) {
         return b.shape.rank() > 0 && b.bytes % 64 == 0 && (b.layout.blocks = {{0, 3}}, true);
       });
     }},
    {"another feed",
     [](const Plan& plan, const Visit& visit) {
       EachBuffer(plan, visit, [](Program&, Buffer& b) { return b.arena == Arena::kFeed && (b.feed += 1, true); });
     }},
    {"a part by itself",
     [](const Plan& plan, const Visit& visit) {
       EachBuffer(plan, visit, [](Program&, Buffer& b) { return b.whole >= 0 && b.arena != Arena::kFeed && (b.whole = -1, true); });
     }},
    {"smaller arena",
     [](const Plan& plan, const Visit& visit) {
       for (size_t p = 0; p < plan.programs.size(); ++p) {
         Plan mutant = plan;
         mutant.programs.Mutable(p).transient_bytes -= 64;
         if (mutant.programs[p].transient_bytes >= 0) visit(mutant, "program " + std::to_string(p));
       }
     }},
    {"moved state",
     [](const Plan& plan, const Visit& visit) {
       for (size_t s = 0; s < plan.state.size(); ++s) {
         if (!Sampled(plan.state.size())) continue;
         Plan mutant = plan;
         mutant.state[s].offset += 64;
         visit(mutant, "state " + std::to_string(s));
       }
     }},
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
    {"another place",
     [](const Plan& plan, const Visit& visit) {
       for (const Way& way : WaysOf(plan)) {
         if (plan.places.size() < 2 && way.bodies.empty()) continue;
         Plan mutant = plan;
         int& place = way.In(mutant).place;
         place = (place + 1) % std::max(static_cast<int>(plan.places.size()), 2);
         visit(mutant, way.ToString());
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

std::span<const MutationKind> MutationKinds() { return kKinds; }

void SampleMutations(size_t places, uint64_t seed) {
  sampled_places = places;
  sampling.seed(seed);
}

}  // namespace gradloom
