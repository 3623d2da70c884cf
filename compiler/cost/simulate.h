// A discrete-event simulation of a plan: when each instruction of each stream starts and ends, by the cost model or a profile.
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

// The ranks that run one program. They all behave alike: they communicate with the same kinds of ranks and share nothing else.
struct SimulatedProgram {
  int program = 0;
  int ranks = 0;                     // that run the program
  std::vector<SimulatedSpan> spans;  // in the program's order, of the instructions that take time
  std::vector<double> busy;          // seconds, per stream
  double communication = 0;          // seconds in which a collective operation or a transfer is running
  double exposed = 0;                // the part of `communication` in which no stream computes
};

struct Simulation {
  double seconds = 0;  // of one step
  int devices = 1;
  int64_t samples = 0;  // in the step
  std::vector<SimulatedProgram> programs;
  // The critical path of the step, from start to end: (index into programs, instruction).
  std::vector<std::pair<int, int>> critical;
};

// Measured seconds of launches, by program and instruction; negative where nothing was measured.
using Profile = std::vector<std::vector<double>>;

// Simulates one step of an entry. `devices` 0: the devices of the plan. Otherwise that many, in groups that each behave like the first rank
// and the ranks with which it has transfers. Throws Error(kPlan) if the entry does not exist, and Error(kConfig) if the devices do not form
// whole groups. The simulation of a verified plan always terminates.
Simulation Simulate(const Plan& plan, int entry, const Cluster& cluster, int devices = 0, const Profile* profile = nullptr);

// An update with its batches.
struct SimulatedUpdate {
  Simulation batch;                  // one of the batches; if it is the only one, it includes the update
  std::optional<Simulation> update;  // if the plan accumulates gradients: the entry that updates
  bool with_batch = false;           // whether `update` trains on the last batch, too
  int64_t batches = 1;               // of an update

  double seconds() const { return static_cast<double>(before()) * batch.seconds + (update ? update->seconds : 0); }
  int64_t samples() const { return batches * batch.samples; }
  // The number of batches that `update` does not train on.
  int64_t before() const { return batches - (with_batch ? 1 : 0); }
  // For the first program: the seconds in which a collective operation or a transfer is running, and the part of them in which no stream
  // computes.
  double communication() const { return OfFirst(&SimulatedProgram::communication); }
  double exposed() const { return OfFirst(&SimulatedProgram::exposed); }

 private:
  double OfFirst(double SimulatedProgram::*what) const;
};

// The same for a training entry, including the update of a plan that accumulates gradients over several batches.
SimulatedUpdate SimulateUpdate(const Plan& plan, int entry, const Cluster& cluster, int devices = 0, const Profile* profile = nullptr);

}  // namespace gradloom
