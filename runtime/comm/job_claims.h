// What one launcher says of this process: the first half of ResolveJobTopology.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/job_topology.h"

namespace gradloom {

enum JobField { kRank, kWorld, kLocalRank, kLocalWorld, kNode, kNodes, kPort, kJobFields };

// A number and who says it: {5, "RANK=5"}.
struct SaidNumber {
  int64_t value = 0;
  std::string source;
};

// What one launcher says; what it leaves open is empty.
struct JobClaim {
  std::string launcher;
  // Set by a person to correct what launchers say: others may differ from it.
  bool corrects = false;
  // Ranks find each other without an address.
  bool own_transport = false;
  std::array<std::optional<SaidNumber>, kJobFields> fields;
  std::string address;
  // Why there is a job of which nobody can tell what this process is: an error unless another level tells.
  std::string riddle;
  std::vector<std::string> notes;

  bool says(JobField field) const { return fields[field].has_value(); }
  int64_t value(JobField field) const { return fields[field]->value; }
};

// Of all launchers, the one that counts most first.
std::vector<JobClaim> ClaimsOf(const JobFlags& flags, const EnvironmentVariables& environment);

}  // namespace gradloom
