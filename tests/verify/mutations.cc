#include "tests/verify/mutations.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tests/verify/rank_mutations.h"

namespace gradloom {
namespace {

using Visit = std::function<void(const Plan& mutant, const std::string& site)>;
using Kind = InstructionKind;

size_t sampled_places = 0;
std::mt19937_64 sampling;

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
};

}  // namespace

bool Sampled(size_t places) { return sampled_places == 0 || sampling() % std::max<size_t>(places, 1) < sampled_places; }

std::span<const MutationKind> MutationKinds() {
  static const std::vector<MutationKind> all = [] {
    std::vector<MutationKind> kinds(std::begin(kKinds), std::end(kKinds));
    const std::span<const MutationKind> of_ranks = RankMutationKinds();
    kinds.insert(kinds.end(), of_ranks.begin(), of_ranks.end());
    return kinds;
  }();
  return all;
}

void SampleMutations(size_t places, uint64_t seed) {
  sampled_places = places;
  sampling.seed(seed);
}

}  // namespace gradloom
