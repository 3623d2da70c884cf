// What each launcher says about this process: the first half of ResolveJobTopology.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/job_topology.h"

namespace gradloom {

enum JobField { kRank, kWorld, kLocalRank, kLocalWorld, kNode, kNodes, kPort, kJobFields };

// A number and its source: {5, "RANK=5"}.
struct SaidNumber {
  int64_t value = 0;
  std::string source;
};

// What one launcher says; open fields are empty.
struct JobClaim {
  std::string launcher;
  // Set by the user to override launchers: others may differ from it.
  bool corrects = false;
  // Whether ranks find each other without an address.
  bool own_transport = false;
  std::array<std::optional<SaidNumber>, kJobFields> fields;
  std::string address;
  // Why the rank of this process in its job is unknown: an error unless another launcher tells it.
  std::string riddle;
  std::vector<std::string> notes;

  bool says(JobField field) const { return fields[field].has_value(); }
  int64_t value(JobField field) const { return fields[field]->value; }
};

// The claims of all launchers, by descending precedence.
std::vector<JobClaim> ClaimsOf(const JobFlags& flags, const EnvironmentVariables& environment);

}  // namespace gradloom
