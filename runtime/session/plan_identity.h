// What a plan must have in common with another for training to go on to the same bits.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

struct PlanIdentity {
  std::string model_name;
  std::string model_hash;
  // What else decides the bits of a step, each under a name for people: the schedule, the optimizer, the
  // number of threads, ... Short ones are text, long ones a hash. Entries that do not train, and the values
  // that state starts with, are no part of it.
  std::map<std::string, std::string> parts;
  std::string hash;  // of all parts: 16 hexadecimal digits
};

// The name of the part that says how many threads the streams have, as a number where all have as many.
inline constexpr char kThreadsPart[] = "threads";

PlanIdentity IdentityOf(const Plan& plan);

// The parts that differ, one line each: "threads: 2 there, 4 here". Empty for plans that train alike.
std::vector<std::string> DifferencesOf(const PlanIdentity& there, const PlanIdentity& here);

}  // namespace gradloom
