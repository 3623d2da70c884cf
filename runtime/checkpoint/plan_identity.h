// The identity of a plan: what must be equal for training to continue to the same bits.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

struct PlanIdentity {
  std::string model_name;
  std::string model_hash;
  // Everything else that decides the bits of a step, each under a readable name: the schedule, the optimizer, the number of threads, ...
  // Short ones are text, long ones a hash. Entries that do not train, and initial values of state, are not included.
  std::map<std::string, std::string> parts;
  std::string hash;  // of all parts: 16 hexadecimal digits
};

// The name of the part with the number of threads of the streams; a single number if it is the same for all.
inline constexpr char kThreadsPart[] = "threads";

PlanIdentity IdentityOf(const Plan& plan);

// The parts that differ, one line each: "threads: 2 in the checkpoint, 4 in this run". Empty if the plans train alike.
std::vector<std::string> DifferencesOf(const PlanIdentity& there, const PlanIdentity& here,
                                       const std::string& in_there = "in the checkpoint", const std::string& in_here = "in this run");

}  // namespace gradloom
