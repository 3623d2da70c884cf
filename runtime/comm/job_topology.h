// Which process of a job this is, according to flags, the environment of its launcher, or nothing for a single process.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradloom {

struct JobTopology {
  int rank = 0, world = 1;              // among the processes of the job
  int local_rank = 0, local_world = 1;  // among those of this host
  int node = 0, nodes = 1;
  std::string master_address;      // of rank 0; "" if world is 1 or the launcher's own transport finds it
  int master_port = 0;             // 0: none
  std::string launcher;            // the source: "single process", "torchrun", "slurm", ...
  std::vector<std::string> notes;  // variables of other launchers that disagree
};

// The values of flags, which override every environment; empty if a flag is not given.
struct JobFlags {
  std::optional<int64_t> rank, world, local_rank, local_world, node, nodes, master_port;
  std::string master_address;
};

using EnvironmentVariables = std::map<std::string, std::string, std::less<>>;
EnvironmentVariables ThisProcessesVariables();

// GRADLOOM_RANK and so on, with which a user overrides launchers.
std::vector<std::string> OverridingVariables();

inline constexpr int kDefaultMasterPort = 29500;
// Tells processes that `gradloom launch`, and not torchrun, has set torchrun's variables.
inline constexpr char kLauncherVariable[] = "GRADLOOM_LAUNCHER";

// Uses flags, then GRADLOOM_RANK and so on, then the variables of torchrun, PET_*, Slurm's, those of MPI launchers; without any of them: a
// single process. The first source counts, and those below that agree with it fill what it leaves open. Throws Error(kConfig), naming
// variables and values, for contradictions and for a job in which this process's rank is unknown.
JobTopology ResolveJobTopology(const JobFlags& flags, const EnvironmentVariables& environment);

// "torchrun rank 1 of 2, node 0 of 1, master 127.0.0.1:29500"; "single process".
std::string ToString(const JobTopology& topology);

// The hosts of a list in Slurm's form: "gpu[01-03,7],login" is gpu01, gpu02, gpu03, gpu7, login. Throws Error(kConfig) for another form and
// for more than 65,536 hosts.
std::vector<std::string> HostsOf(const std::string& list);

}  // namespace gradloom
