// A program as one table a stream, for people.
#pragma once

#include <string>

#include "compiler/cost/simulate.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// By stream: each instruction with its predicted begin and time, what it reads and writes, and the events that it waits for and
// records. `simulated`: of this program.
std::string StreamTables(const Program& program, const SimulatedProgram& simulated);

// What a simulated step tells: streams and how busy they are, exposed communication, the longest links of the critical path.
std::string SimulationSummary(const Plan& plan, const Simulation& simulation, size_t longest = 5);

// "12.34 ms", "21.4 s": with four figures.
std::string Milliseconds(double seconds);

}  // namespace gradloom
