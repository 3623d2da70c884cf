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
struct SourcedNumber {
  int64_t value = 0;
  std::string source;
};

// What one launcher says; open fields are empty.
struct LauncherInfo {
  std::string launcher;
  // Set by the user to override launchers: others may differ from it.
  bool overrides = false;
  // Whether ranks find each other without an address.
  bool own_transport = false;
  std::array<std::optional<SourcedNumber>, kJobFields> fields;
  std::string address;
  // Why the rank of this process in its job is unknown: an error unless another launcher tells it.
  std::string rank_problem;
  std::vector<std::string> notes;

  bool has(JobField field) const { return fields[field].has_value(); }
  int64_t value(JobField field) const { return fields[field]->value; }
};

// What all launchers set, by descending precedence.
std::vector<LauncherInfo> InfoOfLaunchers(const JobFlags& flags, const EnvironmentVariables& environment);

}  // namespace gradloom
