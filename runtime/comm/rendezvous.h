// Connects the processes of a job with each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/job_topology.h"
#include "runtime/comm/socket.h"

namespace gradloom {

// A process of the job. Messages name its host and its number there.
struct JobProcess {
  std::string host;
  int pid = 0;
  uint64_t machine = 0;  // hash of its HostIdentity
};

struct JobConnections {
  std::vector<JobProcess> processes;  // by rank
  std::vector<Socket> sockets;        // by rank, to each other process; closed for this one
};

// Rank 0 listens at the master's address. The others connect to it, get the addresses of all, and connect with each other. If the port is
// taken (torchrun keeps a store of its own there), rank 0 takes one of the next ports, and the others look there. Throws Error(kPeer) if
// processes do not come by the deadline, Error(kConfig) if they disagree about their ranks.
JobConnections ConnectProcesses(const JobTopology& topology, Deadline deadline);

}  // namespace gradloom
