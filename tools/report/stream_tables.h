// A program as one text table per stream.
#pragma once

#include <map>
#include <string>

#include "compiler/cost/simulate.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// For each stream, its instructions with predicted start and duration, operands, and the events that they wait for and record. `simulated`
// must belong to this program.
std::string StreamTables(const Program& program, const SimulatedProgram& simulated);

// Seconds of the instructions of each phase, all streams together. `simulated` must belong to this program.
std::map<PlanPhase, double> SecondsByPhase(const Program& program, const SimulatedProgram& simulated);

// Summarizes a simulated step: the time of each phase, the utilization of each stream, exposed communication, and the longest instructions
// of the critical path.
std::string SimulationSummary(const Plan& plan, const Simulation& simulation);

// "12.34 ms", "21.4 s": four significant digits.
std::string Milliseconds(double seconds);

}  // namespace gradloom
