// The options of `gradloom launch`, and the environment of each process that it starts.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/comm/job_topology.h"

namespace gradloom {

// The flags as given; "" and -1: not given.
struct LaunchFlags {
  std::string nproc_per_node = "1", nnodes = "1", rdzv_endpoint, rdzv_backend = "static", rdzv_id = "none", master_addr, log_dir, redirects,
              tee;
  int node_rank = -1, master_port = -1, max_restarts = 0, shutdown_timeout = 30;
  bool standalone = false;
  std::vector<std::string> command;
};

// Where the output of a process goes: its own file, the launcher's terminal, or both.
struct StreamTarget {
  bool file = false, terminal = true;
};

struct LaunchOptions {
  int per_node = 1, nodes = 1, node = 0;
  std::string master_address;
  int master_port = 0;  // 0: a free port for each attempt
  int max_restarts = 0;
  int shutdown_seconds = 30;  // between the request to stop and SIGKILL
  std::string run_id;
  std::string log_dir;                               // "": a temporary folder, removed if the job succeeds
  std::vector<std::array<StreamTarget, 2>> streams;  // by local rank: stdout and stderr
  int threads = 0;                                   // OMP_NUM_THREADS of each process; 0: keep the environment's
  std::vector<std::string> command;

  int world() const { return per_node * nodes; }
  int RankOf(int local_rank) const { return node * per_node + local_rank; }
};

// The resources that the ranks of this host share.
struct LaunchMachine {
  int cores = 1, gpus = 0;
};

// Throws Error(kConfig), and Error(kUnsupported) for a variable number of hosts.
LaunchOptions LaunchOptionsOf(const LaunchFlags& flags, const LaunchMachine& machine, const EnvironmentVariables& environment);

// torchrun's variables for one process, on top of the launcher's environment.
EnvironmentVariables VariablesOfRank(const LaunchOptions& options, int local_rank, int restarts, int master_port,
                                     const std::string& error_file, EnvironmentVariables environment);

}  // namespace gradloom
