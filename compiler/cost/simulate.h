// A plan as discrete events: when each instruction of each stream begins and ends, by the cost model or a profile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/cost/cluster.h"
#include "runtime/plan/plan.h"

namespace gradloom {

struct SimulatedSpan {
  int instruction = 0;
  double start = 0, end = 0;  // seconds from the start of the step
};

// The ranks that run one program: all alike, as they meet the same kinds of ranks and share nothing else.
struct SimulatedProgram {
  int program = 0;
  int ranks = 0;                     // that run it
  std::vector<SimulatedSpan> spans;  // in the program's order: of what takes time
  std::vector<double> busy;          // seconds, by stream
  double communication = 0;          // seconds in which a meeting or a transfer goes on
  double exposed = 0;                // of them those in which no stream computes
};

struct Simulation {
  double seconds = 0;  // of a step
  int devices = 1;
  int64_t samples = 0;  // of the step
  std::vector<SimulatedProgram> programs;
  // What the step waits for from its begin to its end: (index into programs, instruction).
  std::vector<std::pair<int, int>> critical;
};

// Measured seconds of launches, by program and instruction; a negative number where none was measured.
using Profile = std::vector<std::vector<double>>;

// One step of an entry. `devices` 0: those of the plan; else so many, in groups that do what the first rank and those that it has
// transfers with do. Throws Error(kPlan) for an entry that is not there, Error(kConfig) where the devices do not make whole
// groups; a plan that has been verified comes to its end.
Simulation Simulate(const Plan& plan, int entry, const Cluster& cluster, int devices = 0, const Profile* profile = nullptr);

// An update with the batches that it is made of.
struct SimulatedUpdate {
  Simulation batch;                  // each of them; where it is the only one, with what updates
  std::optional<Simulation> update;  // where the plan accumulates, the entry that updates
  int64_t batches = 1;

  double seconds() const { return static_cast<double>(batches) * batch.seconds + (update ? update->seconds : 0); }
  int64_t samples() const { return batches * batch.samples; }
  // Of the first program, seconds in which a meeting or a transfer goes on, and those of them in which no stream computes.
  double communication() const { return OfFirst(&SimulatedProgram::communication); }
  double exposed() const { return OfFirst(&SimulatedProgram::exposed); }

 private:
  double OfFirst(double SimulatedProgram::*what) const;
};

// The same of a training entry, with the update of a plan that counts the batches of one.
SimulatedUpdate SimulateUpdate(const Plan& plan, int entry, const Cluster& cluster, int devices = 0, const Profile* profile = nullptr);

// What a launch computes and moves, by the row of its operator, as the compiler counts a node.
Cost CostOfLaunch(const Program& program, const Instruction& launch);

}  // namespace gradloom
