// Which process of a job this is, as its launcher says: flags, the environment, or nothing for a process by itself.
#pragma once

#include <string>
#include <vector>

namespace gradloom {

struct JobTopology {
  int rank = 0, world = 1;              // of the processes of the job
  int local_rank = 0, local_world = 1;  // of those of this host
  int node = 0, nodes = 1;
  std::string master_address;           // of rank 0; "" where world is 1 or the launcher's own transport finds it
  int master_port = 0;                  // 0: none
  std::string launcher;                 // "single process", "torchrun", "slurm", ...: who said so
  std::vector<std::string> notes;       // variables of launchers that are not in force and disagree
};

}  // namespace gradloom
