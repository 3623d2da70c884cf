// Which process of a job this is, as its launcher says: flags, the environment, or nothing for a process by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradloom {

struct JobTopology {
  int rank = 0, world = 1;              // of the processes of the job
  int local_rank = 0, local_world = 1;  // of those of this host
  int node = 0, nodes = 1;
  std::string master_address;      // of rank 0; "" where world is 1 or the launcher's own transport finds it
  int master_port = 0;             // 0: none
  std::string launcher;            // "single process", "torchrun", "slurm", ...: who said so
  std::vector<std::string> notes;  // variables of launchers that are not in force and disagree
};

// What is said by flags, over every environment; nothing where they are silent.
struct JobFlags {
  std::optional<int64_t> rank, world, local_rank, local_world, node, nodes, master_port;
  std::string master_address;
};

using EnvironmentVariables = std::map<std::string, std::string, std::less<>>;
EnvironmentVariables ThisProcessesVariables();

// GRADLOOM_RANK and so on, by which a person corrects what launchers say.
std::vector<std::string> CorrectingVariables();

inline constexpr int kDefaultMasterPort = 29500;
// By which `gradloom launch` tells its processes that it, and not torchrun, has set torchrun's variables.
inline constexpr char kLauncherVariable[] = "GRADLOOM_LAUNCHER";

// Flags, then GRADLOOM_RANK and so on, then the variables of torchrun, PET_*, Slurm's, those of MPI launchers; none of them: a process by
// itself. What the first of them leaves open is filled by those below that agree with it. Throws Error(kConfig), naming variables and
// values, for those that contradict each other and for a job that does not say which of its processes this is.
JobTopology ResolveJobTopology(const JobFlags& flags, const EnvironmentVariables& environment);

// "torchrun rank 1 of 2, node 0 of 1, master 127.0.0.1:29500"; "single process".
std::string ToString(const JobTopology& topology);

// The hosts of a list as Slurm writes it: "gpu[01-03,7],login" is gpu01, gpu02, gpu03, gpu7, login. Throws Error(kConfig) for another form
// and for more than 65,536 hosts.
std::vector<std::string> HostsOf(const std::string& list);

}  // namespace gradloom
